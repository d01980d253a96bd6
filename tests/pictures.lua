-- pictures.lua -- small images for the specs: files as Pillow 13 wrote them, and what Pillow and torchvision 0.29 make
-- of them, as base64. The picture is 26 x 18 pixels: waves in red, a slope in green and one in blue, a red rectangle.
local flow = require "flow"

local M = {}

-- Bytes by name. color: 4:2:0, with an EXIF orientation of 6.
M.files = {
    color =
        "/9j/4AAQSkZJRgABAQAAAQABAAD/4QAiRXhpZgAATU0AKgAAAAgAAQESAAMAAAABAAYAAAAAAAD/2wBDAAYEBQYFBAYGBQYHBwYIChAK" ..
        "CgkJChQODwwQFxQYGBcUFhYaHSUfGhsjHBYWICwgIyYnKSopGR8tMC0oMCUoKSj/2wBDAQcHBwoIChMKChMoGhYaKCgoKCgoKCgoKCgo" ..
        "KCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCj/wAARCAASABoDASIAAhEBAxEB/8QAHwAAAQUBAQEBAQEAAAAAAAAA" ..
        "AAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRol" ..
        "JicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5" ..
        "usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/8QAHwEAAwEBAQEBAQEBAQAAAAAAAAECAwQFBgcICQoL/8QAtREA" ..
        "AgECBAQDBAcFBAQAAQJ3AAECAxEEBSExBhJBUQdhcRMiMoEIFEKRobHBCSMzUvAVYnLRChYkNOEl8RcYGRomJygpKjU2Nzg5OkNERUZH" ..
        "SElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6goOEhYaHiImKkpOUlZaXmJmaoqOkpaanqKmqsrO0tba3uLm6wsPExcbHyMnK0tPU1dbX" ..
        "2Nna4uPk5ebn6Onq8vP09fb3+Pn6/9oADAMBAAIRAxEAPwDmNF1L7LbKQu89MZxXQafqZ1HzAY9mzH8Wc5z7e1ea218Y3C54ru/C0qys" ..
        "MKBnrgda9jHZnXjX9v7T3O1v1PoswzHC18LLAuD9p0d9Fr29DsNGhYSqa7dJMIv0rF023URBqv8AmYr57E8R+1lufnGKyj6lO3c+Vl/1" ..
        "wr0Pwb95KKKzzL+EfVVf+Rg/U9b08/uF+lPJ5NFFfBS+JmHEH8SJ/9k=",
    progressive =
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAoHBwgHBgoICAgLCgoLDhgQDg0NDh0VFhEYIx8lJCIfIiEmKzcvJik0KSEiMEExNDk7Pj4+" ..
        "JS5ESUM8SDc9Pjv/2wBDAQoLCw4NDhwQEBw7KCIoOzs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7" ..
        "Ozv/wgARCAASABoDASIAAhEBAxEB/8QAGQAAAwADAAAAAAAAAAAAAAAAAAQFAQMG/8QAFgEBAQEAAAAAAAAAAAAAAAAABAIF/9oADAMB" ..
        "AAIQAxAAAAFNqRSQx6ivtJjcZUCX28hlR//EAB0QAAICAQUAAAAAAAAAAAAAAAACAQMREBIhMUH/2gAIAQEAAQUCR8Qr7xI5IYpnIsae" ..
        "0C9H/8QAHREAAgIBBQAAAAAAAAAAAAAAAAIBAxMEESExM//aAAgBAwEBPwG21GTHtyPRjkn1NV3B/8QAHREAAAUFAAAAAAAAAAAAAAAA" ..
        "AAECAxEEEBIhMv/aAAgBAgEBPwFx5RKynQXVyYe5t//EABQQAQAAAAAAAAAAAAAAAAAAADD/2gAIAQEABj8CT//EABkQAAIDAQAAAAAA" ..
        "AAAAAAAAAAARARAhQf/aAAgBAQABPyHls0YkTCJwTNDMdOLP/9oADAMBAAIAAwAAABA6h73/xAAZEQACAwEAAAAAAAAAAAAAAAAAARAx" ..
        "cYH/2gAIAQMBAT8Qb31O4Xxv/8QAGREAAgMBAAAAAAAAAAAAAAAAAAEQMUGR/9oACAECAQE/EOVRpQO2f//EABwQAAMBAAIDAAAAAAAA" ..
        "AAAAAAABETFBcRAhUf/aAAgBAQABPxCc1T5YPhxObRJGel0OlRDKJK7EKSvxQ2M+h6f/2Q==",
    gray =
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNS" ..
        "Mj5aYVpQYEpRUk//wAALCAASABoBAREA/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9" ..
        "AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZn" ..
        "aGlqc3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP0" ..
        "9fb3+Pn6/9oACAEBAAA/AM20ufKjBAz7Zq/Bcm43Dbtxjvmr9ohDg1sq3yj6V5rHOVbFbemsHI4AzXR28YCg1PurzEffrf0nqK6qD/Vi" ..
        "nV//2Q==",
    cmyk =
        "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwANCQoLCggNCwoLDg4NDxMgFRMSEhMnHB4XIC4pMTAuKS0sMzpKPjM2RjcsLUBXQUZMTlJTUjI+" ..
        "WmFaUGBKUVJP/8AAFAgAEgAaBEMRAE0RAFkRAEsRAP/EAB8AAAEFAQEBAQEBAAAAAAAAAAABAgMEBQYHCAkKC//EALUQAAIBAwMCBAMF" ..
        "BQQEAAABfQECAwAEEQUSITFBBhNRYQcicRQygZGhCCNCscEVUtHwJDNicoIJChYXGBkaJSYnKCkqNDU2Nzg5OkNERUZHSElKU1RVVldY" ..
        "WVpjZGVmZ2hpanN0dXZ3eHl6g4SFhoeIiYqSk5SVlpeYmZqio6Slpqeoqaqys7S1tre4ubrCw8TFxsfIycrS09TV1tfY2drh4uPk5ebn" ..
        "6Onq8fLz9PX29/j5+v/aAA4EQwBNAFkASwAAPwDpPDjedmANtKpu6Z9B/WuIgn+zxB9u7nGM4rc1zxQ2k2aXCw+eWkCbd+3HBOc4PpXp" ..
        "1UvGFkYoo/3m8y7uNuMYx/jXQ6BffbGkHl7PLx/FnOc/4VDoPi5tY8/db+R5O3/lpu3Zz7D0orhYtNkW534OM12mn9q1/wC1P9qiugQY" ..
        "RR6CtodBR/an+1RWbeavcafcn7PNJE3TKMVOPwrxSxRXADqGHoRmuGmvop1CTokig5AdQRn8aK0dLvrjVWQXU8suOm9y2PzrptLiiiOY" ..
        "40TPXaoGabDeQW+fIiji3ddihc/lRXRSaUi2+/aOldXp/apf7U/2qKw2XDEehraHQUf2p/tUVy2u/wDH0frXi2n9q5vcfU0Vs+FPvrXT" ..
        "6f2o3H1NFd/P/wAef4V1Gn9qNx9TRXJSf6xvqa2h0FG4+por/9k=",
    rgb =
        "iVBORw0KGgoAAAANSUhEUgAAABoAAAASCAIAAADKe1n0AAAB0UlEQVR4nIXUS27UQBRG4c+v7tudAQyCkiWwATbDiB3AEtgBu2BN7CAI" ..
        "pAhBnH7ZbgaVazm0gFIN7JLr1O9bp6r6eP3jNtyEV+Fl2IYunMM+/Ar34Xv4Gu7CXfgW7sPPsA9TaMM2vAjX4SbchpYeZyamfDhfdFTZ" ..
        "a2pQLwZLa+kLaODEMXFHToz5WigtHV2Oz69NLvCEK6A9FW3iDhwZElcmrxmomWjYsKLLpC39yJEdNW++vHXRPr37XD4NTqDjTMM6ie2c" ..
        "bmBPw3RJApO+ZsWGM21GrukIgnZOd2KfP/hv3JaGYExcw4o13TLdjiPNX3Cjvmb9nCU3t6H5I13Jdf4fbr1wYtlmmZ5wpQ98eP3+HIQ6" ..
        "NKENXej0q3RiqUWRdMzpxxm3Y8eBgYmKJsu8yfllE4MVDVXaWgx75LSs3UNWcMwqlDIV0LwVVwRd4ophUqAn3IFHHjJgRZcP68zbseGK" ..
        "bRZx5EBNCfRM4xJ4t6BUrPL3i2KrJJa8Iw0ju7Ti6ZANear2iSu6nlKLuZrr9LbOlQ60Wc2Wft6gIS+CKr8eF0elWijW5uZ2OVjN6Zbu" ..
        "nC/su7ygquf30tLElr5arNwsRKmzlwlT9jErMC5uydJ+Ay50zQx//H8sAAAAAElFTkSuQmCC",
    rgba =
        "iVBORw0KGgoAAAANSUhEUgAAABoAAAASCAYAAABFGc6jAAAB7klEQVR4nI2V223VQBCGP9vreDZ5gIegpAQaoBme6ABKoAO6oCY6ABEJ" ..
        "IRLjnBOvzUP+sccHhzDSyNZe5tu57VYfL39ybeQrI78y8ksjnxu5NfJs5Hsj3xr5h5FvjPzNyF+l3zX+S+smIyftf2HkS9m9NnKCHoAZ" ..
        "mKRz+O4pQBW0lqJvnHNJ0C+AEXgAjgF01FgJY248Aa3U5+NYEw6wgBxwL0MpgA76jgHkBjuN1wI1QAbONF+v63uKDA2aePPlLU/Jp3ef" ..
        "F5DpgMjoLFAXYCl6NMqTRqf6l0z01DKSZTwFb2tBTZqiRw8Ceaj+F3SuwxmPOXJQo/lO0I1HgyDNM6AiULcDcXFYs+eRexI3PAfq2Jbw" ..
        "qcR2WECuI/Dh9XtmBbk2aAySQWvQ0i8VtVfG3oMl2DxG0CA9CDbptA1rcnMw6pVlPOaj0XrvR2+V34JtcnTHmquyxnbJgwNiMVxovg0g" ..
        "bxVYy38BHUS/C15VMuD/XfC0lUcXAnq+ivbX2jew07Du6nBivJIHHlLvlbMAc0+Lwlhkx6t4uYI8rgcBHeQN6fedX0Geu461Od2LSXZS" ..
        "yF2CflMpI+vlWoXNfmm6OMx7JbFWXhvmvPyXZwL2n4MoTz0Tpwp/91eCflnQBI3lXQd1A1PQwhrWwvZdc/kDmtnN7S2kwvAAAAAASUVO" ..
        "RK5CYII=",
    palette =
        "iVBORw0KGgoAAAANSUhEUgAAABoAAAASBAMAAAC3N9OQAAAAFVBMVEWwvmNWwsSiiXJih7S3PdTRFEZMQ2Pe1Y16AAAABHRSTlP///8A" ..
        "QCqp9AAAAGNJREFUeJx9zcERwjAQQ9HnxAVAB55UQAkc6H+oIOMO2AaIc4gH4gOcNF/SrtIDtFhhAuKQTpSBQCZdeB32mH2pDDQhL1p/" ..
        "X6pMur6fLVh7c74F2+duRv29sP1Zrye69yzOzR0m2hM+Aonw/wAAAABJRU5ErkJggg==",
    bits =
        "iVBORw0KGgoAAAANSUhEUgAAABoAAAASAQAAAABtYvMOAAAAZUlEQVR4nAFaAKX/ASqAARUEICuA6wTg1VkSAVUAACsBIjRgCgBJCqtA" ..
        "ACqq28AEGqADkwESmAwKAUnMRuUAJKrtwAECSQsqBE/ZkQUBCI3ZEgFEBpHlAREaQtMBQEnuCQAKKq1AaIIZyPJMOBwAAAAASUVORK5C" ..
        "YII=",
    wide =
        "iVBORw0KGgoAAAANSUhEUgAAABoAAAASEAAAAAAw4k08AAAAdElEQVR4nK2RUQ7AIAhD7dJkOwz3P4cH8mMfzmwqE8gWfgj1RVqQ0p6P" ..
        "q7ROmxICQam1CfLYocw6Ic8HGjbrhGjjNcb6eQxj23jtotfpc9F3XRBebAjChzVPoVv9l56FqelZ2Et6a5df0othShA2xnt3/61OzaVv" ..
        "gBMv5nQAAAAASUVORK5CYII=",
}

-- {channels, height, width, bytes}: decoded, and changed by a function of torchvision (of the picture in `rgb`).
M.wanted = {
    color = {3, 26, 18,
        "dXNxcW9ucHR6gYmNlJSLg3pyamhpaWdoaG12foiNl5iUkI2JU1RYWllZW2Brd4aQmZ2eoaeqPT9DSE1QVWBxhJyoq62vtL3ELCwuNkBL" ..
        "V2yJpcPPyMPCxtPeIiIiKThHVG6StdXj1czO1eXxIyAfJTI+SmSNt93t2dDT3uz7JCMgJDA7RF6Kuen64tXV3OfyLiwqLjk/RmiXvuz/" ..
        "8NXd0d/qNzY2OUFJVHScv+/97dDVxMrORUVISlFcaYanwu/45cnKuLWyV1hdXWNqcYihtsLLwKqvnp+eb291dHV0cnmKlLe5spqYhYSC" ..
        "h4eKiIaFe3yBg4KChXV7bXR1pKCdl5mZlI+JfnNqbWJtY2hlubWwpqeqpZyMd2xbWk5ZT1NMy8rHw8C5r6OTg29gUkc+ODQ019XT0MnA" ..
        "s6SUhnFhUEE0LSgl3t3Z1c7FuaeWhnFjUUI0LCcl3Nrc1tDHuamXh3FjUUE1Kyck19XY083DtqaVhnFhUkM3LSkmz83MyMS7sKCShHFk" ..
        "Vkk9NTEvwL+8uravppuOg3VpXFJJQ0A/sK6sqqiknZOKgHduZVtUUE1MnZ2ampeVko+JhXp1cWxpZ2VklJOTkJCQjImGgoB7d3VycG9u" ..
        "FxcZGh0dGxkXExAMCwwNEhkbGxsdHSAgIB8eGxgVFhgYGyIjIyIhIiQnKCorKignKiopKCkpKykoJykrLS8vLi4wMjI0MSwrMzIyMDAv" ..
        "Li0pJSMmKS45Ny4uPDs6OTk5NzIrIxkbHik+QTY3QkJCQ0VGRD40KRoZGiZESz07SEdHSU1PT0c6LB8aFyVIUEJBUVBQUllZVlNDKRYT" ..
        "GSBSVVJTWllYWFxeXVlDJBUQFR9VXFtcZmRjX2JjY11EJRkSGSVcZmpqcG5saWtsamVUPB0ZJTBia3V3dXRzcXZ3dHRvZG9rbmd8dHd1" ..
        "fHx+fICBfX2Bf3l5gHaBdn19g4SLh4eHg4OHhoiGjYKKfoN/iYuSjIqNi4qLiJCNkomShomDk5OWlpiXlJSUlpSWlpWTk5OTnZ2bnJyd" ..
        "nJubnZqcnZ2cnZ6ep6empqalpKOipKGjo6Ojo6Skrq6xsLCwrauqrKmqqqmpqamqtLS4uLi3trSztK+ysbGwsbGyvr6/v7++vby8vLq7" ..
        "u7q6u7u8x8bGxsfGxcTDxMXFxcTDxMXFzs3Nzc7OzcvLyszNzMrKy8vM0tPS0tLT09TU1tPV1dbX19jY1dXW1tbW1tfY2Nrc29zc3d3c" ..
        "OzxDTV1qdoKOmqmxu8TJ1OLmOj1ETlxpdoKOmaKquMPO2+rwOz9IUVpmdYKMkpadrL3P3+31OT5JUldhdIGHiYWKma7L4e31OUBPVlVf" ..
        "cn6CemtreZTE3urzOUJUWlVdcXx8bExJVnq53en0PERYXVRbcHl2YTgvOWSw2uTwOkNYXFNab3VvVy0iKlSo1d7nOURZXlZabXp0USIX" ..
        "KU2tz9/sOUFXWlNZbnpvTCYaKk2qzd3lOUJUVlJbcX1yUjUsPFqy0uHoOUBPU1RecX14Yzs5TWm00OXsNzxMUldib3uCfIWFlZ/J1OHn" ..
        "Oj5KUlxocn+NkI6WqK7N0ebsQENNVGFxe4eUm6WrvL/W2ertP0NMT15vfIiRmKqwwcPZ2enoPkBJUl1qdoGOmqSwu8bT3OftPEBGUFll" ..
        "cn6Ll6CsucbR3ejtQkVNVmBqd4CMmqGtucbR3efrPkNSW2NteYOOmqCuuMLQ2+PpPEFRXWVveoONmqCst8LN2OHnPEFPWmRteIKOmZ+r" ..
        "t8LO2OLnO0JMWGFsd4KLmaKut8TO2uTqOkFLVV9qd4CLlaKtucPO2uLpOj9JU1xodYOPm6Owu8jW4+3xOT1IUVpmc4GOmaezv8vY5O7z"},
    progressive = {3, 18, 26,
        "mJ+tuMLHzMrHwaqWiXNbTDcqJSEgKTlIYW6Zoau2wcrQ0cnGs5yLcl1TOCwnIyMqOklhbo6XqbzQ4Ozx5+XNr5N0W1E7MS0pKDA9TGNu" ..
        "gZCnwdjq+f758dW1mntdUUE5NTEyN0RPZnB6iaW/1eTv8fPmx66ghmZXS0VCPj9ETVdqc3CBnLnT4u7y9ubEraSObVpWVFJQTlJaYW12" ..
        "aHmTr8vg8Pj36cqyppFxZGZjY2BhY2hscnlsd4qftcja4trTvKqjk3x2dHN0cXFzdXd5f29zf42crrrCvLSqoZqSiH6BhYiKiYaGgoaD" ..
        "bnB0e4SMlZqmo6CcmZSOi5CTlpqZlpKNjYhwbmtoaWlsb36Ch4qLjpCUnqGoqqmmoJiRjHBrYltSTU1NVWBsd3+IlaCpsbi7urSsopWO" ..
        "cWpfUUI7NjU7SV9veoqdrLW9xcnHwbaqmJFzaVxKOSwmJC8+U2V3iZ2uvMbQ09LKvbCakHNpV0QyJR0cJzNIXnKImqvBzNbb2dHEtJuR" ..
        "cmdVQi8iGhklMEddd46gsMbS2uDc08W1nJJwZ1VCMCMdGiY0SmF2ip6vxNXd3trTw66bkXBnVUIxJR8dJzdMYneMn7HH19/f2tPDrpuR" ..
        "ChQiMTxGTlVbZ2hufYB+iJKaoKixvsjO2d4QGCMuNT1ES05dY2p4fX+QkJmgqLG9x83Z3RAZIy42PkRLTF1kaXV5fY+Ql5+nsbzGzNjd" ..
        "EhkkLjM1Njk+SlFbcHh+jJCYn6ewu8XL190YHiYqJhwUERojKkBmfIOOkpmgqLC8xszX3RgeJykiFw0JERYcNmN+g4yUm6KpsrzHzdTb" ..
        "GB4lKCUfGhkaISU7Y3uCi5Wco6qyvMbO09oeIiYmIyAeHhojKT1jeoSRlZuhqLC5xc3R2SAiIyUnKSssJyw2SWN5hYuUmqOss7zFzNfZ" ..
        "HiAjKCswMjRCRk1bbHyGi5KZoamxucLK1tgbHSEoLjQ6PU1TWmNsd4KJkpmhqrC4wszU1xkcICgwOD9DSlJdZWt1gYuUmqKqsLjCzNHV" ..
        "GhshKDM8RElOWGNrcHmHkpabpKyyucLM0dUZHCEpMz5ITVVdZm1zeoePl52krLK6w83P1BkbIScyPkdNVlxka3J7hoyYnqautLrDzdDV" ..
        "GRsgJzE9RkxVW2JsdoGMkZiepq+1u8XO0dYaGyAmLzpESlNbY2pxeoeOlJ2lq7G7w8nR1hscICcvOkRJU1pjanF6h46UnaarsrzEytHW" ..
        "2N/t9/////////31+fDm6u/w7ujm5urp8fTa4OXq7Ozr6uft6ufr5+Ht6evn49/f4+Lq7tPV2NjU0cvHwszNzNXV1+Tg393Z1dXY1+Hk" ..
        "ycvKxLaonJOPmJ2lvMfN2NPSz8vJyMrJ09fFwruqj3JWR0dPV3Ggu8XOyMXEwL69vbzEx7q2rJp6VzknKCw1Vo2vvMG9ubm3srK0s7a5" ..
        "raqgjnFWPC4pLDVRgqKutrOvr6urqquoqK2mo5iHbFRBNikwOVB9mKivqKOkop+foKCeo5+akIR1aFlRRERNX3qPoJ6bm56em5qal5ya" ..
        "kY+KhHtzaWNoZWlxgIyVk4+PkZKRj46OkY+Dg4B/fnp3cnp3d3h7f4KDhIKHiIaEhYSFhHd3d3d6eXp1dHN0c21vdnh3eHt+e3t5end1" ..
        "aWpsbG5ycW5sa25qZmVvcWprb3JxbmxtaGhfYGFiY2RkYWJiYl5aWWBhYF9lZ2VjYWFZWVlXVVNUVFNRUE5OTUxPVFVWU1pdXFpXV05O" ..
        "T0xKSEhIR0NFQEFDRkxRUEtLUFNQTU1MRUVBQT49P0BBPD48PDs6PENBP0BEQj8/PTw/Pzw6Ojg8PT06Ojo5Nzc4PTw7Oj87ODg4Nzs9"},
    gray = {1, 18, 26,
        "TlhndH2DiIuNlY6Kkot/hYGDhYeMlqOstr9MVGBrdHyEioOLhYOOioCGgYOFh4yWoqu1vlJYYWpye4SLjZOJhY6He3+Bg4WIjZahqrS9" ..
        "Ulliam9zeXyDiH58iIV6foKEh4qOl6Gps7xHUFtjZWNhYFthXWR9hYKJhIaKjZGZoqmxu0VOW2JiXVhVU1lUXXqFg4qGio6RlZukqrC5" ..
        "R09aYGFeW1lhZFtifIWBhomNkpWZnqarr7hCSVFWWFhZW1lcVF17h4SKi4+Ul5ugp62vuEdITE9UWFtdWVpfZ3J8g4aPlJqeoqassbe3" ..
        "RUZJTFBVWFphYmdud4CHipGWnKGkqK6yt7dCQ0RHS09SVGNlanF5gYiMlZqgpaissLS2tj8/QEFESEtOWV1lbHR+h42YnqWqrK+ztrW1" ..
        "PTw7PD5BRUhNVV9ocXyJkZuhqa6wsrS3s7M9Ozk4OT1BREhSXmhyfoyXnKOrsLKztbaysj06NzU2Oj5BR1FeaHB7i5ado6yys7O0tbGx" ..
        "PTo3NDU4PUBGUV1mbHaFkZ2krLK0s7S1sbE4NjMxMjU4O0VMVmFseIWNmqGqsLKys7Ovrzg2MzEyNTg7RUxWYWx4hY2aoaqwsrKzs6+v"},
    cmyk = {3, 18, 26,
        "fJ6oy9vN6tzUyLqkknNZRDUpHx8kLT5PY3V6nKbJ2NXt4eDOu6eSeV9HNikeHSIsPU1kdYCfpL/Gz9vPzLmpoYR4Yks8LiMiJi9AUWd3" ..
        "gZ2ftrrZ2tLNwbm4gXdjT0Y5Ly0xOUhYanh4lJiwufv3+Pf08u6Ne2ZWT0Q7Oz1DUF1uenqRkaOp//r//v///4h7a19YT0lLTU9YYnJ7" ..
        "gZOKlJT/7Pbx8PP8eXtza2VfXGBhYGVtdXx/kIaOj//z///69P54gnxzcm1scXJwcnh2fXSAfXmZ1v7/+v/816J9d39+hIaDgoWCe4J+" ..
        "hYZ4ZGBqa2BfbHl6dXeFko6Vl5STlZGJhH93cWplYVxWUlxgZ252f4iOn6erqKenoZiHgYFtXVpTSEdQVFhhbXyLl56psri3tbKpn4uD" ..
        "jG9XTD4sKTUtOkxfcoigsLK9xcTCvbGkkIV5ZVNLQTMwNjdFWGVwg5yvvcnT1NDJuquUh3ppUT0sIBgXIzFGWm2Ho7fG097f29LBsZeJ" ..
        "gnFTNCQiIyEqNEVZcYuktMjW4ePf1cOymYp/alA+LiEeISYzRltwiaO0yNXf39vSwrObhX9qUD4uIR4hJjNGW3CJo7TI1d/f29LCs5uF" ..
        "DxomLjdBSUxcWWR0b3+LiJacpa20vcXM1toXHSUqMDlBRk5RYGxrd4eLlpylrbS9xczW2hQZIiw1QEtUXGFubnV3hoyWnKWttL3FzNba" ..
        "ExciLzY5P0dQUVpYenqHipacpa20vcXM1toZGiQuKx0VFxkWICRxeYiIlpylrbS9xczW2hcYJDEsFgkLDQYMDXZ8iYaWnKWttL3FzNba" ..
        "FRQhMzEdExkbFhoQgHyIiJacpa20vcXM1tocFyAvKhQMEw4NFgd8dISKlpylrbS9xczW2hYeJyolHRURDwoRLll6h4eWnKWttL3FzNba" ..
        "DxcjLTQ6P0NcW11oeIePkpacpa20vcXM1toUGSEqMz5KUlphaGttc3+JlpylrbS9xczW2hgcIictNkFJTFZjam94iJWWnKWttL3FzNba" ..
        "EhgjLDU/SU9ZX2dvd4GKkZacpa20vcXM1toRGSUvNz5FSlZYXWdye4CClpylrbS9xczW2hYdJSwyNz5DVltjbniCiY2WnKWttL3FzNba" ..
        "FRsjLDU/S1NSWmVscHZ+hZacpa20vcXM1toVHCQtNDxFS1VbZGxzfISLlpylrbS9xczW2hUcJC00PEVLVVtkbHN8hIuWnKWttL3FzNba" ..
        "9/Pw7u3r4f/y8Orw8PXv7u/v7+/v7+/v7+/b5urm8fLi6eXs6+fi3d3k5ubm5ubm5ubm5t3m2sjY2dfVy9rf1dzT2ObZ2dnZ2dnZ2dnZ" ..
        "yNDNzOLG09nR1M6+3s7Hy87Ozs7Ozs7Ozs7GxcbFry0WERobIzmswsrLxMTExMTExMTExLSwucq7HxwjKR8ZJrG+ua65ubm5ubm5ubm5" ..
        "ubGpq6UOHyAeGRccsLazr62tra2tra2tra2epaKkqhsrFBoeHxmmn6Gko6Ojo6Ojo6Ojo52VnaN7NxggGxQcQnacpJ2Xl5eXl5eXl5eX" ..
        "jYiSopqEhZmZjoaHkJGJfo6Ojo6Ojo6Ojo6Ig4GBfXl+iIGCg4ODg4SGgYGBgYGBgYGBgXN2dnR1enhxbnN3d3R0eHx2dnZ2dnZ2dnZ2" ..
        "aW9wbXJ6dmt1dHJvbGlnZm1tbW1tbW1tbW1pZ2BXVlpbV1RUVFheYmJiYmJiYmJiYmJiYlRRUFNVWWFqW1tbWVZUU1RVVVVVVVVVVVVV" ..
        "U05QVU9CQElHTVBNR0RHTUtLS0tLS0tLS0tAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQDg4ODg4ODg4ODg4ODg4ODg4ODg4ODg4ODg4"},
    palette = {4, 18, 26,
        "t7e3t7e3t7e3t7e3t2JiYlZWVlZWVlZWVla3t7e3t7e3t7e3t7diYmJiVlZWVlZWVlZWVre3t7e3t7e3t7e3t2JiYmJiVlZWVlZWVlZW" ..
        "t7e3t7e3t7e3t7e3YmJiYmJWVlZWVlZWVla3t7e3t9HR0dHR0dFiYmJiYmJWVlZWVlZWVre3t7e30dHR0dHR0WJiYmJiYlZWVlZWVlZW" ..
        "t7e3t7fR0dHR0dHRYmJiYmJiYlZWVlZWVla3t7e3t9HR0dHR0dFiYmJiYmJiYlZWVlZWVkxMTExM0dHR0dHR0WJiYmJiYmJiYlZWVlZW" ..
        "TExMTExMTExMYmJiYqKioqKioqKwsLCwsLBMTExMTExMTExMTGKioqKioqKisLCwsLCwsExMTExMTExMTExMTKKioqKiorCwsLCwsLCw" ..
        "TExMTExMTExMTExMoqKioqKisLCwsLCwsLBMTExMTExMTExMTEyioqKiorCwsLCwsLCwsExMTExMTExMTExMTKKioqKisLCwsLCwsLCw" ..
        "TExMTExMTExMTExMoqKiorCwsLCwsLCwsLBMTExMTExMTExMTExMoqKisLCwsLCwsLCwsNFMTExMTExMTExMTEyioqKwsLCwsLCwsLCw" ..
        "PT09PT09PT09PT09PYeHh8LCwsLCwsLCwsI9PT09PT09PT09PT2Hh4eHwsLCwsLCwsLCwj09PT09PT09PT09PYeHh4eHwsLCwsLCwsLC" ..
        "PT09PT09PT09PT09h4eHh4fCwsLCwsLCwsI9PT09PRQUFBQUFBSHh4eHh4fCwsLCwsLCwj09PT09FBQUFBQUFIeHh4eHh8LCwsLCwsLC" ..
        "PT09PT0UFBQUFBQUh4eHh4eHh8LCwsLCwsI9PT09PRQUFBQUFBSHh4eHh4eHh8LCwsLCwkNDQ0NDFBQUFBQUFIeHh4eHh4eHh8LCwsLC" ..
        "Q0NDQ0NDQ0NDh4eHh4mJiYmJiYm+vr6+vr5DQ0NDQ0NDQ0NDQ4eJiYmJiYmJvr6+vr6+vkNDQ0NDQ0NDQ0NDQ4mJiYmJib6+vr6+vr6+" ..
        "Q0NDQ0NDQ0NDQ0NDiYmJiYmJvr6+vr6+vr5DQ0NDQ0NDQ0NDQ0OJiYmJib6+vr6+vr6+vkNDQ0NDQ0NDQ0NDQ4mJiYmJvr6+vr6+vr6+" ..
        "Q0NDQ0NDQ0NDQ0NDiYmJib6+vr6+vr6+vr5DQ0NDQ0NDQ0NDQ0NDiYmJvr6+vr6+vr6+vhRDQ0NDQ0NDQ0NDQ0OJiYm+vr6+vr6+vr6+" ..
        "1NTU1NTU1NTU1NTU1LS0tMTExMTExMTExMTU1NTU1NTU1NTU1NS0tLS0xMTExMTExMTExNTU1NTU1NTU1NTU1LS0tLS0xMTExMTExMTE" ..
        "1NTU1NTU1NTU1NTUtLS0tLTExMTExMTExMTU1NTU1EZGRkZGRka0tLS0tLTExMTExMTExNTU1NTURkZGRkZGRrS0tLS0tMTExMTExMTE" ..
        "1NTU1NRGRkZGRkZGtLS0tLS0tMTExMTExMTU1NTU1EZGRkZGRka0tLS0tLS0tMTExMTExGNjY2NjRkZGRkZGRrS0tLS0tLS0tMTExMTE" ..
        "Y2NjY2NjY2NjtLS0tHJycnJycnJjY2NjY2NjY2NjY2NjY2NjY7RycnJycnJyY2NjY2NjY2NjY2NjY2NjY2NjY3JycnJycmNjY2NjY2Nj" ..
        "Y2NjY2NjY2NjY2NjcnJycnJyY2NjY2NjY2NjY2NjY2NjY2NjY2NycnJycmNjY2NjY2NjY2NjY2NjY2NjY2NjY3JycnJyY2NjY2NjY2Nj" ..
        "Y2NjY2NjY2NjY2NjcnJycmNjY2NjY2NjY2NjY2NjY2NjY2NjY2NjcnJyY2NjY2NjY2NjY0ZjY2NjY2NjY2NjY2NycnJjY2NjY2NjY2Nj" ..
        "/////////////////wAAAP////////////////////////////8AAAAA/////////////////////////////wAAAAAA////////////" ..
        "////////////////AAAAAAD///////////////////////////8AAAAAAAD//////////////////////////wAAAAAAAP//////////" ..
        "////////////////AAAAAAAAAP////////////////////////8AAAAAAAAAAP///////////////////////wAAAAAAAAAAAP//////" ..
        "////////////AAAAAP///////////////////////////////wD/////////////////////////////////////////////////////" ..
        "////////////////////////////////////////////////////////////////////////////////////////////////////////" ..
        "////////////////////////////////////////////////////////////////////////////////////////////////////////"},
    resize_7_9 = {3, 7, 9,
        "m8vbvYFEJDJhlsTj0opQN0Fnirb485dpXWJ0fIetsIyHi4qDb1FIWn+kt6+SZjkqRn631MicYzIiQX683c+fHjNKYXiPpr3SHi0zQnCP" ..
        "pr3SHiYVGmaPpr3SHi0wPm+Ppr3SHjNKYXiPpr3SHjNKYXiPpr3SHjNKYXiPpr3S5OTk5OTk5OTky7aFiLzLy8vLr4QhJ5Cvr6+vk4BV" ..
        "V4WTk5OTdnZ2dnZ2dnZ2WlpaWlpaWlpaQUFBQUFBQUFB"},
    resize_20_40 = {3, 20, 40,
        "gIubqrjF0Nje4ePi3dbOw7apmYp5aVlLPjMqIx4dHSAmLjhFUmFxfICLm6m2w87W3eDh4NzVzcK1qJiJeWpaTD80LCUgHx8iKC85RlNh" ..
        "cXyAipqotcDK0tnc3dzY0cm/tKeXiHprXE5DODApJCMjJiwzPUhVY3J8gImXpLC7xMvR1NXU0MvDua+jlYh6bWBSSD42MCwrKy0zOUJN" ..
        "WWVzfYCIlKCqtLzN5ujo6Obj4NzX0qyHe29jWE5FPzo2NTU3PEJJU11odH2Ah5Gao6uyzvr6+vr6+vr6+vq/hntyaF9XT0pGQkFCREdM" ..
        "UlpjbHZ9gIWNlJugpsf6+vr6+vr6+vr6voR9dW5nYVtWVFFQUVJVWF1janF4foCEiI2RlZi/+vr6+vr6+vr6+r2Dfnl0cGtoZGNhYGFi" ..
        "Y2ZqbXF2e36AgoSGh4mLtfr6+vr6+vr6+vq7gX99e3l3dXRzcnJycnN0dnh5fH1/gIB/fn19fKnz8/Pz8/Pz8/Pztn+AgIGBgoODg4OD" ..
        "g4ODg4OCgYCAgIB9eXZ0cW5ucXBwcHFzdXd6fX19gYSIi42QkpSVlZWUk5GPjIqHg4CAe3VvamRgXVtaWVpcXmFma3B2fIKIjpOYnaGj" ..
        "paalpKKfm5aSi4aBgHpwaGFZVFBMSklKTVBVW2JpcXuDjJSco6qusrW2tbSwrKegmJGIgYB4bGJZT0hDPzw7PD9ESVFaY215hI+Zo620" ..
        "ur/DxMPBvbixqJ+VioKAdmldUkg/OTMwLzA0OkBJU19rd4WSnqm0vcTKzs/PzcfBua+kmIyCgHZnWU1BODAqJyYnKzE5Q05baXeFlKKu" ..
        "usTM09fY2NbQyMC0qJuNgoB1ZVZJPTMrJSIgISUsND9LWGh2hpWksr7J0djd3t7b1c7EuKudjoOAdGRVSDswKCIfHR4iKTE8SVdndoaV" ..
        "pbPAy9Tb4OHh3tjRxrqtno6DgHRkVUc6LychHhwdIikxPElWZnWGlqa0wczV3OHi4t/Z0ce6rZ6Og4B1ZVZJPTIqJCEfICUrMz5LWGd2" ..
        "hpWksr/K0tne39/c1s/FuayejoMUGB0iJy0yNzxBR0xRVlthZmtwdXuAhYqPlZqfpKmvtLm+w8nO09jcFBgdIictMjc8QUdMUVZbYWZr" ..
        "cHV7gIWKj5Wan6Spr7S5vsPJztPY3BQYHSInLTI3PEFHTFFWW2Fma3B1e4CFio+Vmp+kqa+0ub7Dyc7T2NwUGB0iJy0yNzxBR0xRVlth" ..
        "ZmtwdXuAhYqPlZqfpKmvtLm+w8nO09jcFBgdIictMi8mKCstLzI0Nzk7WXV7gIWKj5Wan6Spr7S5vsPJztPY3BQYHSInLTIoFBQUFBQU" ..
        "FBQUFEZ1e4CFio+Vmp+kqa+0ub7Dyc7T2NwUGB0iJy0yKBQUFBQUFBQUFBRGdXuAhYqPlZqfpKmvtLm+w8nO09jcFBgdIictMigUFBQU" ..
        "FBQUFBQURnV7gIWKj5Wan6Spr7S5vsPJztPY3BQYHSInLTIoFBQUFBQUFBQUFEZ1e4CFio+Vmp+kqa+0ub7Dyc7T2NwUGB0iJy0yKRYW" ..
        "FxcXFxgYGBhIdXuAhYqPlZqfpKmvtLm+w8nO09jcFBgdIictMjY6P0RJTlNXXWJnbnV7gIWKj5Wan6Spr7S5vsPJztPY3BQYHSInLTI3" ..
        "PEFHTFFWW2Fma3B1e4CFio+Vmp+kqa+0ub7Dyc7T2NwUGB0iJy0yNzxBR0xRVlthZmtwdXuAhYqPlZqfpKmvtLm+w8nO09jcFBgdIict" ..
        "Mjc8QUdMUVZbYWZrcHV7gIWKj5Wan6Spr7S5vsPJztPY3BQYHSInLTI3PEFHTFFWW2Fma3B1e4CFio+Vmp+kqa+0ub7Dyc7T2NwUGB0i" ..
        "Jy0yNzxBR0xRVlthZmtwdXuAhYqPlZqfpKmvtLm+w8nO09jcFBgdIictMjc8QUdMUVZbYWZrcHV7gIWKj5Wan6Spr7S5vsPJztPY3BQY" ..
        "HSInLTI3PEFHTFFWW2Fma3B1e4CFio+Vmp+kqa+0ub7Dyc7T2NwUGB0iJy0yNzxBR0xRVlthZmtwdXuAhYqPlZqfpKmvtLm+w8nO09jc" ..
        "FBgdIictMjc8QUdMUVZbYWZrcHV7gIWKj5Wan6Spr7S5vsPJztPY3PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw" ..
        "8PDn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d" ..
        "3d3d3dPT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PJycnJycnJp25ubm5ubm5ubm6eycnJycnJycnJycnJycnJ" ..
        "ycnJycnJv7+/v7+/v4MeHh4eHh4eHh4ecr+/v7+/v7+/v7+/v7+/v7+/v7+/v7W1tbW1tbV9Hh4eHh4eHh4eHm21tbW1tbW1tbW1tbW1" ..
        "tbW1tbW1tbWrq6urq6urdh4eHh4eHh4eHh5pq6urq6urq6urq6urq6urq6urq6uroaGhoaGhoXAeHh4eHh4eHh4eY6GhoaGhoaGhoaGh" ..
        "oaGhoaGhoaGhoZeXl5eXl5dsJCQkJCQkJCQkJGCXl5eXl5eXl5eXl5eXl5eXl5eXl5eOjo6Ojo6Oi4eHh4eHh4eHh4eLjo6Ojo6Ojo6O" ..
        "jo6Ojo6Ojo6Ojo6OhISEhISEhISEhISEhISEhISEhISEhISEhISEhISEhISEhISEhISEhHp6enp6enp6enp6enp6enp6enp6enp6enp6" ..
        "enp6enp6enp6enp6enpwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZm" ..
        "ZmZmZmZmZmZmZmZmZmZmZlxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFxSUlJSUlJSUlJSUlJSUlJSUlJSUlJS" ..
        "UlJSUlJSUlJSUlJSUlJSUlJSSEhISEhISEhISEhISEhISEhISEhISEhISEhISEhISEhISEhISEhISD4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+" ..
        "Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj41NTU1NTU1NTU1NTU1NTU1NTU1NTU1NTU1NTU1NTU1NTU1NTU1NTU1"},
    brightness = {3, 18, 26,
        "s9T1///////////oxqOAYkg1KicsOk9rjK2z1PP//////////+fFo4JjSjgsKi88UW2MrbPS8P//////////5MSlhWlRPzMxNkNYcY6t" ..
        "s8/p//////////fewqaKcFtLQT9DT2B4ka+zy+H1//////////+/qJB7aVtSUVVfbYCXr7PF1uXy/////////72qmId5bmlnanF8jJyw" ..
        "s77L1N3/////////uq2hlYyFgH+Cho6Yo7CzuL7Cxv////////+2sKqloZybm5ueoqassbOxsLCv/////////7GztLS2tra2tra2tLOz" ..
        "s6qjnJeUk5OVmp+mrba9xMvP0tLQzcnCu7Ozo5eKgHt4eX6FkJyquMbT3ufr7Onk29DCtLOeinltZGBiZ3KAk6a7z+Hw/P////ns28m0" ..
        "s5iAa1tRS01UYnSKo73W7v////////znz7azlHhgTUA6PEZVaoWhv932/////////+/TtrORclhDNS8xOktjgJ/B4f3/////////9de3" ..
        "s5BwVD0vKCozRl9+n8Hi///////////52bezkHBSPC4nKDNGX3yeweT///////////nZt7ORcVZAMissOEhif5/B4f//////////99m3" ..
        "HCcyPUhUX2p1gIyXoq24xM/a5fD8//////8cJzI9SFRfanWAjJeirbjEz9rl8Pz//////xwnMj1IVF9qdYCMl6KtuMTP2uXw/P//////" ..
        "HCcyPUhUX2p1gIyXoq24xM/a5fD8//////8cJzI9SBwcHBwcHByirbjEz9rl8Pz//////xwnMj1IHBwcHBwcHKKtuMTP2uXw/P//////" ..
        "HCcyPUgcHBwcHBwcoq24xM/a5fD8//////8cJzI9SBwcHBwcHByirbjEz9rl8Pz//////xwnMj1IHBwcHBwcHKKtuMTP2uXw/P//////" ..
        "HCcyPUhUX2p1gIyXoq24xM/a5fD8//////8cJzI9SFRfanWAjJeirbjEz9rl8Pz//////xwnMj1IVF9qdYCMl6KtuMTP2uXw/P//////" ..
        "HCcyPUhUX2p1gIyXoq24xM/a5fD8//////8cJzI9SFRfanWAjJeirbjEz9rl8Pz//////xwnMj1IVF9qdYCMl6KtuMTP2uXw/P//////" ..
        "HCcyPUhUX2p1gIyXoq24xM/a5fD8//////8cJzI9SFRfanWAjJeirbjEz9rl8Pz//////xwnMj1IVF9qdYCMl6KtuMTP2uXw/P//////" ..
        "////////////////////////////////////////////////////////////////////////////////////////////////////////" ..
        "/////////////////////////////////////////yoqKioqKir/////////////////////////KioqKioqKv//////////////////" ..
        "8/Pz8/MqKioqKioq8/Pz8/Pz8/Pz8/Pz8/Pk5OTk5CoqKioqKirk5OTk5OTk5OTk5OTk5NTU1NTUKioqKioqKtTU1NTU1NTU1NTU1NTU" ..
        "xcXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcW2tra2tra2tra2tra2tra2tra2tra2tra2tqampqampqampqampqampqampqampqampqam" ..
        "l5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh3h4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4" ..
        "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlZWVlZWVlZWVlZWVlZWVlZWVlZWVlZWVlZWUpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpK"},
    contrast = {3, 18, 26,
        "fYyaprC2ubizrKGUhndoW1BHQ0FESlNfbXt9jJmlr7W4t7OroJSFd2hbUElEQ0VKU19te32LmKOssrSzr6iekoV3al5TTEdGSE1WYW57" ..
        "fYmVn6esr66qpJuQhHhsYVhRTUxNU1pkb3x9iJGaoMfHx8fHx8eDeW5lXlhUU1VZX2hxfH2FjJOYx8fHx8fHx4J6cmtlYF5dXmFmbXR8" ..
        "fYKIjI/Hx8fHx8fHgHt2cW1qaGdoam5yd3x9gIKEhsfHx8fHx8d/fHp3dnRzc3N0dnh6fX19fHx8x8fHx8fHx319fn5/f39/f39/fn19" ..
        "fXp3dHFwcHBxc3V4e3+ChYiJi4uKiYeEgX19d3FsaGVkZWdqbnR6gIaLkJSVlpWSj4qEfn10bGVfXFpbXWJocHiBiZGYnaCgn5uWj4d+" ..
        "fXJoX1hTUVJVW2Jsd4KMl56kqamno52UiX99cGRaUkxKSk9VXmp2g4+apKuvsK+poZeLf31vYlZNR0VGSlFbaHWDkZ2osLW2s62lmo1/" ..
        "fW5hVUtFQkNHT1lndYOSn6qyt7i2sKebjn99bmFUSkRBQkdPWWZ0g5KgqrO4ubawp5uOf31vYVZMRkNESVBbZ3WDkZ6psba3ta+mm45/" ..
        "PUFGS1BVWV5jaG1xdnuAhYmOk5idoaarsLU9QUZLUFVZXmNobXF2e4CFiY6TmJ2hpquwtT1BRktQVVleY2htcXZ7gIWJjpOYnaGmq7C1" ..
        "PUFGS1BVWV5jaG1xdnuAhYmOk5idoaarsLU9QUZLUD09PT09PT12e4CFiY6TmJ2hpquwtT1BRktQPT09PT09PXZ7gIWJjpOYnaGmq7C1" ..
        "PUFGS1A9PT09PT09dnuAhYmOk5idoaarsLU9QUZLUD09PT09PT12e4CFiY6TmJ2hpquwtT1BRktQPT09PT09PXZ7gIWJjpOYnaGmq7C1" ..
        "PUFGS1BVWV5jaG1xdnuAhYmOk5idoaarsLU9QUZLUFVZXmNobXF2e4CFiY6TmJ2hpquwtT1BRktQVVleY2htcXZ7gIWJjpOYnaGmq7C1" ..
        "PUFGS1BVWV5jaG1xdnuAhYmOk5idoaarsLU9QUZLUFVZXmNobXF2e4CFiY6TmJ2hpquwtT1BRktQVVleY2htcXZ7gIWJjpOYnaGmq7C1" ..
        "PUFGS1BVWV5jaG1xdnuAhYmOk5idoaarsLU9QUZLUFVZXmNobXF2e4CFiY6TmJ2hpquwtT1BRktQVVleY2htcXZ7gIWJjpOYnaGmq7C1" ..
        "wcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcG6urq6urq6urq6urq6urq6urq6urq6urq6urOzs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Oz" ..
        "ra2tra2tra2tra2tra2tra2tra2tra2tra2mpqampkNDQ0NDQ0OmpqampqampqampqampqCgoKCgQ0NDQ0NDQ6CgoKCgoKCgoKCgoKCg" ..
        "mZmZmZlDQ0NDQ0NDmZmZmZmZmZmZmZmZmZmSkpKSkkNDQ0NDQ0OSkpKSkpKSkpKSkpKSkoyMjIyMQ0NDQ0NDQ4yMjIyMjIyMjIyMjIyM" ..
        "hYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYV/f39/f39/f39/f39/f39/f39/f39/f39/f3h4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4" ..
        "cXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFra2tra2tra2tra2tra2tra2tra2tra2tra2RkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRk" ..
        "Xl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5eXl5XV1dXV1dXV1dXV1dXV1dXV1dXV1dXV1dXV1BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQ"},
    saturation = {3, 18, 26,
        "o8Tj////////+du4kWhAHAAAAAAAAAALK0ukxeL9///////42reQaUIeAAAAAAAAAA4sTKXC4Pj///////HWtZBsRiUIAAAAAAAAFDBN" ..
        "psDa8P/////86M6wj25NLRQAAAAAAAYbM0+nvdLj8P////////+NcFQ6IxEFAAEIFCY6UKe4x9Te/////////4t0XUg2Jx4ZGB0lM0FT" ..
        "qbK7wsj/////////iXhnWEpAODMzNDlASVSqrK+wsf////////+Fe3NpYlpVUk5OT1FTVqqmoZ6Z/////////4GAfnp4dnJvbGhlYFtY" ..
        "q5+UiYF6dXJyc3Z5foSIjJCRkY6JgntwZVmsmIh3amBaWFldZnB8h5Odpqysq6Scj4BuW62Ue2ZVSUE/Q0tXZniLna26w8fFv7KijHZc" ..
        "ro5yWEM1LCouOkpedo6lu8zX3tzUx7OZfV+uimpNNCQbGSAtQFp0kq7F2ejv7+fXwKSCX7CIZEUrGRAOFSQ6VnSUs83l9f799OLKqodi" ..
        "sYhiQSYUCQcPHzZUdJW10+r8///76s+vimOxiWNBJhMJBxAfN1NzlbjV7f7///3r0bCKZLKLZkYrGA4MFSM7V3aWttPr+///+unPsIxk" ..
        "AAAAAAMMFR8sOUdVZXSEk6GuusXO1t3j6e4AAAAABQ0WISw5SFdmdYSToq67xc/X3uTq7wAAAAAHDxgjLjtJWGd2hZOhrrrFztfe5evw" ..
        "AAAAAgkSGyYxPktZaHeFk6GtucPN1t3k6/EAAAAEDAAAAAAAAABpd4WTn6y3wsvU3eTr8gAAAAgQAAAAAAAAAGp3hJGeqrW/ydPb4+vz" ..
        "AAACCxQAAAAAAAAAbHiEkJynsr3G0dni6/MAAAUPGAAAAAAAAABteISOmqWvusTO1+Hr9AAACBIcAAAAAAAAAG95g42Xoqy2wcvV4Or1" ..
        "AAAKFiEsNkBKVV5ncHmDjJWfqLO9yNPe6vUAAQ0ZJjA7RU9YYWlxeYKKk5ymsLvG0t3q9gADEB0pNT9JVFxkbHN6gYmRmqOtuMPP3On3" ..
        "AAQTIC05RE5XX2dudHuBiJCYoau2ws7c6vgABhUiLzxHUVpiaXB2fIGIj5efqbTAzdzq+AAHFiUyPkpUXWVrcXd8gYeOlp+otMDN3Or5" ..
        "AAkYJjRAS1VfZm1zeH2CiI+Wn6i0wM3c6/oACRgnNUFNV19nbXN4foOJj5efqbTAztzr+wAKGSc1QU1XX2dudHl+hIqRmKGrtsLP3u38" ..
        "/////////////////////////////////////////////////////////////////////v///////////////////////////////fXs" ..
        "///////////////////////////79vDp4tr//////wAAAAAAAADx8fLy8fDu6+fi3dbPyf///fjyAAAAAAAAAODf3t7d29nV0s7Jw723" ..
        "9/Lt6OMAAAAAAAAAzs3MysjGw8C8ubSvqqXl4d3Z1QAAAAAAAAC9uri1s7Gtqqejn5yXk9PQzcrGAAAAAAAAAKyopaGem5iUkY6Kh4SB" ..
        "wcC9u7m2sq+rqKSfm5aSjYmGgX97eHVzcW+wrq2sqqeloZ2ZlI+JhH95dHBsaGZjYV9fXZ6enZybmZaTj4mFfnhya2ZgW1ZTUE5NTEtL" ..
        "jIyNjIyKiISAenVuZ2BZUkxGQj47Ojg4OTl6e319fHp4dXBqZF1VTkY/ODItKicmJSYmJ2hqa2xsa2hlYFpTTEQ8MywlHxoWFBISExQV" ..
        "VllaW1taV1RPSUI6MiohGhMMBwMBAAAAAgRER0hJSUhGQj03MCggGA8IAQAAAAAAAAAAADI1Njc3NTMwKyUeFg4GAAAAAAAAAAAAAAAA"},
    hue = {3, 18, 26,
        "8PDw8PDw8PDw8PDw8PDmzLajlIqGhoqSnKfl5eXl5eXl5eXl5eXl5drAqZeIf3p5fYWPmtra2tra2tva2tra2trazragjn92cXB0eoON" ..
        "z8/Pz8/P0tHPz8/Pz8/ErZiIenBramxxeYPExMTExNbW1tbW1tbExLqmk4N2bmhlZWpxfbm5ubm51tbW1tbW1rm5saCQgXZtZ2NjZnB+" ..
        "rq6urq7W1tbW1tbWrq6pm42Bdm5oZGZtdX6jo6Ojo9bW1tbW1tajo6GWjIF5cm9xdHd7f5iYmJiY1tbW1tbW1piYmJKKg4KCgoKCgYCA" ..
        "jY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2LhoCCgoKCgoKCgoKCgoKChIqJh4SCgoKCgoKCgYB3d3d3d3d3dnR0d3d+gYSEg394d3d3d3d3" ..
        "gG1sbGxsaWFdXWBlbHJ4foCAfnZsbGxsbGyAamFhYV1SS0hJTl9hZm91enx5c2hhYWFhYYBoVlZWST43NTdHVlZZZGxydXNtYVZWVlZW" ..
        "gGdQS0k5LSYlMkRLS0xXYWhraWNXS0tLS0uAZ1BAOysgHSUyQEBAQEtVW15dVktAQEBAQIBoUT4wJB8gKDQ1NTU1PEZMT01HOzU1NTU1" ..
        "FBwkLD1OWV9dXGRsdHVcRjQmHhwgKjlNZHwUHCQuRFZgZWVeZGx0dV1HNSggHiIrOk5kfBQcJDJIWGNoaGJkbHR2X0s6LSUjJzA/UWZ8" ..
        "FBwkNUlYY2lpZGRsdHdjUEE2Ly0wOUVWaH0UHCQ1R/r6+vr6+vp0eGdYS0E7Oj1ETlxsghQcJDNC+vr6+vr6+nR6bWFXT0tKTFFZZHeO" ..
        "FBwkMDz6+vr6+vr6dHxza2RfXFtdYGl4iJkUHCQsNfr6+vr6+vp0fHp2c3Bvb3J7hY+aphYcJCw0+vr6+vr6+nR8gYGCgoeOlJuhpquy" ..
        "Hx8kLDQ8RExUXGRsdHyEjJScpKy0uby9vr0oIyQsNDxETFRcZGx0gI6Xn6WorLS8xMzNyTIoJCw0PERGSlJcaXWGlKGstLm6uLzEzNTS" ..
        "PS0kLDQ6Njc8RlNjdYeZqrfByMnGv8TM1NxINCUsNC4qKzI9TGd0iZ6wwMzT1dLJxMzU3FM9KiwwJiIjKjZPbHSKobXH1Nze2tDEzNTc" ..
        "XkcxLCwiHR4lOlZsdIqiuMrY4OLe1cXM1NxqUj0sKyEcHy9FYWx0iqO5y9nh49/VxszU3HVeSTguJiYuPlNkbHSKobfJ1t7g3NPEzNTc" ..
        "WEk8MDQ8RExUYX2cvd/w8PDw8PDw8PDw8PBPQTQsNDxETFRcdZS21uXl5eXl5eXl5eXl5UY6LSw0PERMVFxvja7M2tra2tra2tra2trc" ..
        "PTMpLDQ8RExUXG2IpsPPz8/Pz8/Pz8/P1Nw1LScsNBQUFBQUFBSfucTExMTExMTExMzU3CwoJiw0FBQUFBQUFJivubm5ubm5ubzEzNTc" ..
        "IyQlLDQUFBQUFBQUkaSurq6urq60vMTM1NwaICUsNBQUFBQUFBSMmaOjo6OkrLS8xMzU3BQcJjA7FBQUFBQUFIaOlpiYnKSstLzEzNTc" ..
        "FBwnNUNPWWNrcXd7gISIjZGYoKm0vMTM1NwUHCc6SlhjbHN3eXp5fIKCgoKGjZmntsjU3BQcJz1PX2xzd3d3d3R3d3d3d3d3gI+it87c" ..
        "FBwlPlRkbGxsbGxsbWxsbGxsbGxseo6mwdwUHCQ9VWFhYWFhZGxmYWFhYWFhYWFpfZe11BQcJDpSVlZWVlxkal5WVlZWVlZWVlpui6nK" ..
        "FBwkNUtLS0xUXGRjVUtLS0tLS0tLTWJ/oMEUHCQtQEBETFRcZFxNQUBAQEBAQEBFWXaXuBQcJCw1PERMVFxcUUM4NTU1NTU1NT1Rbo6w"},
    gray_of = {1, 18, 26,
        "TVlkb3mAh4uNjo2MiYeEgoGChIiOlp+qtcFMV2Ntd3+FiYyNjIqIhYOBgIGDiI2Vnqm0wEpWYWt0fIKGiYqKiIaEgoGBgYSIjpWeqLO/" ..
        "SVReaHF4foKFhoeGhYOCgYGDhYqPlp+ps75IUltkbFlZWVlZWVmDg4KCg4WIjJKZoKmzvEdPV19nWVlZWVlZWYGCg4SFiIuQlZuiqrO7" ..
        "RUxUW2FZWVlZWVlZf4GDhYiLj5OZnqWss7pESlBVW1lZWVlZWVl9gYSIi4+UmJ2iqK2zuUNHTFBVWVlZWVlZWXuAhYqPk5idoaarr7S4" ..
        "QkRIS05SV1xhZmxzeX+FjJKXnaGmqq6xtLdAQkRGSExQVVthaG93f4aOlZuhpqqtsLO0tj8/QEFDRkpPVFxjbHV+h4+XnqWqrrGztLW1" ..
        "Pj08PT5ARElPV19pc32HkZmhqK2xs7W1tLQ9Ozk5Ojw/REtTXGZxfIeRm6Oqr7O1trW0szs5NzY2ODtAR09ZZG97h5KcpKuxtLa2tbSy" ..
        "Ojc1NDQ1OT5ETVdibnqGkZukq7G0tra1s7A5NjQyMjQ3PENMVmFteYWQmqOqsLO1tbSyrzg1MzIyNDc8Q0tVYGx4g46YoaitsbOzsrCu"},
    rotate = {3, 18, 26,
        "AAAAAAAAAAAAJ0Y+MSgkJy46SFdmc34UAAAAAAAAAAAAJ2VwW0k8MzAxOEJOW2l0fFQAAAAAAAAAGHOmkXxoV0lAPT1ETVhkcHl+gCUA" ..
        "AAAAAGvNwbCch3VkV09MTVNbZnF6gYSEZgAAAE/B3tbIuKSRf3BlXltdY2x2f4iNj4yENyya3+Lf1sq7vM2HenFram10fYaQl5ubl454" ..
        "ws/Z3NrTzuL6+reBeXZ3fIONmKGnq6qkmYq3xc/T0uT4+vr68Il/foGHkZynsbi6ubKnl6u4ws/y+vr6+vr6w4CBho+bp7S+xsnHwLSk" ..
        "nau0ufL6+vr6+vrig4CIk6GvvcnR1dPMwLCRnaWoxvr6+vrzrnR2fIaTo7PCz9je3NbKuoeRl5mX4Pr6vnhoaGtzf46gssPS3OHh3NHD" ..
        "doeMjIig0YlkXVlZXmd1h5qtv8/a4eLdmiw2goSCfHNoXlRNSUpQW2p8kaW4yNXcvk8AAABlf3tzaFtQRT46PEJNXXCFmq6/ymkAAAAA" ..
        "ACV/eG5hU0Y6Mi0vNUBQZHiOonAYAAAAAAAAAFR6bV5OPzIpJSUqNUVYbWImAAAAAAAAAAAAFIBwYE49LyUfHiQuPUYmAAAAAAAAAAAA" ..
        "AAAAAAAAAAAAMnmQl52kq7K5wMfO1dwiAAAAAAAAAAAAHVp+hYyTmaCnrrW8w8rR2JAAAAAAAAAACz9sc3qBiI+VnKOqsbi/xs3U20AA" ..
        "AAAAAChZYWhvdn2Ei5GYn6attLvCydDXrgAAABc+T1ZdZGtyeYCHjZSboqmwt77FzNPaXQonPURLUllgVTx1fIOJkJeepayzusHIz9bL" ..
        "KzI5QEdOTzIUFEx4f4WMk5qhqK+2vcTL0tknLjU8QzIXFBQUHG97gYiPlp2kq7K5wMfO1SMqMTIcFBQUFBQUP3d9hIuSmaCnrrW8w8rR" ..
        "HyYtMxgUFBQUFBQkbXmAh46VnKOqsbi/xs0bIikwKBQUFBQXPmhvdXyDipGYn6attLvCyRceJSwzHBQULFBdZGtxeH+GjZSboqmwt77F" ..
        "EhohKC8sIDlLUllgZ210e4KJkJeepayzhSoIFh0kKzI5QEdOVVxjaXB3foWMk5qhjz4AAAAQGSAnLjU8Q0pRWF9lbHN6gYiPlEwAAAAA" ..
        "AAYVHCMqMTg/Rk1UW2Fob3Z9hFYSAAAAAAAAAA0YHyYtNDtCSVBXXWRrclshAAAAAAAAAAAAAxQbIikwNz5FTFNZYFwrAAAAAAAAAAAA" ..
        "AAAAAAAAAAAAXdXs5uHb1tDLxcC6ta8bAAAAAAAAAAAAPbXt6OLd19LMx8G8trGrpmkAAAAAAAAAHZXv6eTe2dPOyMO9uLKtp6KclyoA" ..
        "AAAAAHXt6+Xg2tXPysS/ubSuqaOemJONawAAAFXN7Ofh3NbRy8bAu7WwqqWfmpSPiYR+MzWt7ujj3djSqGrCvLexrKahm5aQi4WAenVn" ..
        "7+rk39nUwGceHnizraiinZeSjIeBfHZxa2bm4NvV0H8nHh4eKqKknpmTjoiDfXhybWdiXNzX0bA+Hh4eHh4eWJqVj4qEf3l0bmljXlhT" ..
        "0s3HvjAeHh4eHh4yiYuFgHp1b2pkX1lUTknJw764eR4eHh4jW4yHgXx2cWtmYFtVUEpFP7+6tK+pPx4eTISIg314cm1nYlxXUUxGQTs2" ..
        "qLCrpaB7PXWKhH95dG5pY15YU01IQj03JgxJp6GclpGLhoB7dXBqZV9aVE9JRD45LRMAAAB8mJKNh4J8d3FsZmFbVlBLRUA6NBoAAAAA" ..
        "ACuOiYN+eHNtaGJdV1JMR0E8NiEGAAAAAAAAAFd/enRvaWReWVNOSEM9OCgOAAAAAAAAAAAAE3Zwa2VgWlVPSkQ/OS8VAAAAAAAAAAAA"},
}

local alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local function decode(text)
    local bits, count, out = 0, 0, {}
    for letter in text:gmatch("[^=]") do
        bits, count = bits << 6 | alphabet:find(letter, 1, true) - 1, count + 6
        if count >= 8 then
            count = count - 8
            out[#out + 1] = string.char(bits >> count & 255)
        end
    end
    return table.concat(out)
end

for name, text in pairs(M.files) do M.files[name] = decode(text) end

-- The result of that name as a uint8 tensor.
function M.want(name)
    local one = M.wanted[name]
    return flow.frombytes(decode(one[4]), "uint8", {one[1], one[2], one[3]})
end

-- A PNG file that claims a size, of a kind of colours and a depth, with these bytes as its compressed pixels.
function M.png(width, height, depth, kind, pixels)
    local function chunk(name, bytes) return (">I4"):pack(#bytes) .. name .. bytes .. (">I4"):pack(M.crc32(name .. bytes)) end
    local header = (">I4I4BBBBB"):pack(width, height, depth, kind, 0, 0, 0)
    return "\x89PNG\r\n\x1a\n" .. chunk("IHDR", header) .. chunk("IDAT", pixels or "") .. chunk("IEND", "")
end

function M.crc32(bytes)
    local sum = 0xffffffff
    for i = 1, #bytes do
        sum = sum ~ bytes:byte(i)
        for _ = 1, 8 do sum = sum & 1 == 1 and sum >> 1 ~ 0xedb88320 or sum >> 1 end
    end
    return sum ~ 0xffffffff
end

-- The largest difference of the elements of two tensors, or both shapes if they differ.
function M.distance(a, b)
    if tostring(a.shape) ~= tostring(b.shape) then return tostring(a.shape) .. " and " .. tostring(b.shape) end
    return (a:to("int32") - b:to("int32")):abs():max():item()
end

return M
