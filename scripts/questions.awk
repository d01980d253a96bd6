# questions.awk -- comments that are questions or begin like one, in C, CUDA, Lua and sh: awk -f scripts/questions.awk FILE...
#
# A question ends in "?" after a word that one space divides from what is before it. So "x?" of a table of notations and
# "x ? a : b" are none. A comment, or a sentence of it, that begins with "What", "How", "Where", "Which", "Who" or
# "Whether" names a thing by a clause about it: "What messages call the op." is "The name of the op in messages."
# Quoted text and annotations (---@param n integer? ...) are left out. Exits with 1 if there is any.

function complain(text)
{
    print FILENAME ":" FNR ": " text
    found = 1
}

# begins: a comment begins here, so a small letter counts too.
function look(comment, begins)
{
    if (comment ~ /^---@/) return
    plain = comment
    gsub(/"[^"]*"|`[^`]*`/, "", plain)
    if (plain ~ /[^ ] [^ ]*[A-Za-z0-9_)|][?]( |$|\*\/)/) complain("a comment that is a question")
    gsub(/"[^"]*"|`[^`]*`/, "Q", comment)
    sub(/^[-*#\/! ]+/, "", comment)
    if (comment ~ /(^|[.:;)] )(What|How|Where|Which|Who|Whether) / \
        || (begins && comment ~ /^(what|how|where|which|who|whether) /)) complain("a comment that begins with a clause")
}

FNR == 1 { inside = 0; before = "" }

FILENAME ~ /\.lua$/ {
    if (match($0, /--/)) look(substr($0, RSTART), before !~ /^ *--/ || substr($0, 1, RSTART - 1) ~ /[^ ]/)
    before = $0
    next
}

FILENAME ~ /\.sh$/ {
    if ($0 ~ /^ *#/) look($0, before !~ /^ *#/)
    before = $0
    next
}

{
    for (line = $0; inside || (at = index(line, "/*")); line = substr(line, at + 2)) {
        begins = !inside
        if (!inside) line = substr(line, at + 2)
        inside = !(at = index(line, "*/"))
        look(inside ? line : substr(line, 1, at + 1), begins)
        if (inside) break
    }
}

END { exit found }
