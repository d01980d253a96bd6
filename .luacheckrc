-- What luacheck should know (`make lint`).
std = "lua54"
max_line_length = 120
files["tests"] = {std = "+busted", max_line_length = 170}
files["scripts/bench"] = {max_line_length = 140}
