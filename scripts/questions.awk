# questions.awk -- comments that are questions, in C, CUDA and Lua: awk -f scripts/questions.awk FILE...
#
# A question ends in "?" after a word that one space divides from what is before it. So "x?" of a table of notations and
# "x ? a : b" are none. Quoted text and annotations (---@param n integer? ...) are left out. Exits with 1 if there is any.

function look(comment)
{
    gsub(/"[^"]*"|`[^`]*`/, "", comment)
    if (comment ~ /^---@/ || comment !~ /[^ ] [^ ]*[A-Za-z0-9_)|][?]( |$|\*\/)/) return
    print FILENAME ":" FNR ": a comment that is a question"
    found = 1
}

FNR == 1 { inside = 0 }

FILENAME ~ /\.lua$/ {
    if (match($0, /--/)) look(substr($0, RSTART))
    next
}

{
    for (line = $0; inside || (at = index(line, "/*")); line = substr(line, at + 2)) {
        if (!inside) line = substr(line, at + 2)
        inside = !(at = index(line, "*/"))
        look(inside ? line : substr(line, 1, at + 1))
        if (inside) break
    }
}

END { exit found }
