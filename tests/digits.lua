-- digits.lua -- IDX files of small images of digits, as MNIST's four files are, drawn alike in every process.
local process = require "tests.process"

local M = {}

-- Ten digits as a display with seven segments shows them: top, upper left, upper right, middle, lower left, lower
-- right, bottom.
local segments = {
    [0] = "1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010", "1111111", "1111011",
}

local random
local function draw(n)
    random = (random * 1103515245 + 12345) % 2147483648
    return (random >> 8) % n
end

-- An 8 x 8 image of a digit, shifted a little, with noise.
local function image(digit)
    local pixels = {}
    for i = 1, 64 do pixels[i] = draw(60) end
    local down, right = draw(2), draw(3)
    local function segment(i, row, column, rows, columns)
        if segments[digit]:sub(i, i) == "0" then return end
        for y = row, row + rows - 1 do
            for x = column, column + columns - 1 do pixels[(y + down) * 8 + x + right + 1] = 180 + draw(76) end
        end
    end
    segment(1, 0, 1, 1, 3)
    segment(2, 1, 0, 2, 1)
    segment(3, 1, 4, 2, 1)
    segment(4, 3, 1, 1, 3)
    segment(5, 4, 0, 2, 1)
    segment(6, 4, 4, 2, 1)
    segment(7, 6, 1, 1, 3)
    return string.char(table.unpack(pixels))
end

local function write_split(folder, name, count, compress)
    local images, labels = {}, {}
    for i = 1, count do
        local digit = draw(10)
        images[i], labels[i] = image(digit), string.char(digit)
    end
    local function write(file_name, bytes)
        local path = process.write(folder .. "/" .. file_name, bytes)
        if compress then assert(os.execute("gzip -f " .. path)) end
    end
    write(name .. "-images-idx3-ubyte", (">I4I4I4I4"):pack(0x803, count, 8, 8) .. table.concat(images))
    write(name .. "-labels-idx1-ubyte", (">I4I4"):pack(0x801, count) .. table.concat(labels))
end

-- The four files with so many images; the training files compressed if asked to.
function M.write(folder, training, test, compress)
    random = 1
    write_split(folder, "train", training, compress)
    write_split(folder, "t10k", test, false)
end

return M
