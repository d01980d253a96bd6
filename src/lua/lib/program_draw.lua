-- program_draw.lua -- a program as a picture: p:dot() for Graphviz, p:svg(path) drawn here.
--
-- Steps are boxes in layers, each below all that it reads. Weights are named in the boxes that use them and have none
-- of their own. An edge over several layers has a place in each, as a box has, so that it passes between boxes. The
-- order in a layer follows the mean place of the neighbours (Sugiyama's method), and so do the places themselves.

local flow = require "flow"
local check = require "flow.check"
local program = require "flow.program"
local text = require "flow.program_print"

local Program = program.Program
local io_ = flow._io

local M = {}

-- ---- nodes and edges ----

---@class flow.program.Node
---@field kind "input"|"product"|"elementwise"|"view"|"op"|"output"|"bend"
---@field lines string[]
---@field above flow.program.Node[] what it reads
---@field below flow.program.Node[]

local function shape_line(value)
    local sbp = value.sbp and " " .. tostring(value.sbp) or ""
    return ("%s[%s]%s"):format(value.dtype, table.concat(value.shape, ", "), sbp)
end

local products = {}
for name in ("matmul linear linear_relu bmm gemm contract_rows einsum conv1d conv2d scaled_dot_product_attention")
    :gmatch "%S+" do
    products[name] = true
end

local function kind_of(p, step)
    local out, x = p.values[step.outputs[1]], step.operands[1] and p.values[step.operands[1].value]
    if products[step.op] then return "product" end
    if out and x and out.storage == x.storage and not step.in_place then return "view" end
    return step.elementwise and "elementwise" or "op"
end

local function cut(line, most)
    if #line <= most then return line end
    return line:sub(1, most - 3) .. "..."
end

local function new_node(graph, kind, lines)
    local node = {kind = kind, lines = lines, above = {}, below = {}, number = #graph + 1}
    graph[#graph + 1] = node
    return node
end

local function connect(from, to)
    for _, node in ipairs(to.above) do if node == from then return end end
    to.above[#to.above + 1], from.below[#from.below + 1] = from, to
end

-- The lines of a step's box: its result and shape, its weights, numbers and attributes.
local function step_lines(p, step, weights)
    local out, extra = p.values[step.outputs[1]], {}
    for k = 1, step.n do
        local operand = step.operands[k]
        if operand.value and weights[operand.value] then extra[#extra + 1] = p.values[operand.value].name
        elseif not operand.value and operand.number ~= nil then extra[#extra + 1] = text.attribute(operand.number) end
    end
    for _, attribute in ipairs(text.attributes(step)) do extra[#extra + 1] = attribute end
    local name = step.op .. (step.in_place and "_" or "")
    local lines = {out and out.name .. " " .. name or name}
    if out then lines[2] = shape_line(out) end
    if #extra > 0 then lines[#lines + 1] = cut(table.concat(extra, ", "), 44) end
    return lines
end

---The nodes of a program, in an order in which each comes after what it reads.
---@return flow.program.Node[]
function M.graph(p)
    local graph, makers, weights = {}, {}, {}
    for _, weight in ipairs(p.weights) do weights[weight.value] = true end
    for _, input in ipairs(p.inputs) do
        local value = p.values[input.value]
        makers[input.value] = new_node(graph, "input", {input.name, shape_line(value)})
    end
    for _, step in ipairs(p.steps) do
        local node = new_node(graph, kind_of(p, step), step_lines(p, step, weights))
        for k = 1, step.n do
            local from = makers[step.operands[k].value]
            if from then connect(from, node) end
        end
        for _, value in ipairs(step.outputs) do makers[value] = node end
    end
    for _, output in ipairs(p.outputs) do
        local node = new_node(graph, "output", {"returns " .. output.name})
        local from = makers[output.value]
        if from then connect(from, node) end
    end
    return graph
end

-- ---- Graphviz ----

local colours = {
    input = "#cfe3ff", output = "#cfe3ff", product = "#ffdfb8", elementwise = "#d8f0d0", view = "#eeeeee",
    op = "#fff3b8",
}

---The program in the language of Graphviz: `dot -Tsvg`.
---@return string
function Program:dot()
    local lines = {"digraph program {", '    node [shape=box, style="rounded,filled", fontname="monospace"];'}
    local graph = M.graph(self)
    for _, node in ipairs(graph) do
        local label = table.concat(node.lines, "\n"):gsub('[\\"]', "\\%0"):gsub("\n", "\\n")
        lines[#lines + 1] = ('    n%d [label="%s", fillcolor="%s"];'):format(node.number, label, colours[node.kind])
    end
    for _, node in ipairs(graph) do
        for _, from in ipairs(node.above) do
            lines[#lines + 1] = ("    n%d -> n%d;"):format(from.number, node.number)
        end
    end
    lines[#lines + 1] = "}"
    return table.concat(lines, "\n") .. "\n"
end

-- ---- layers ----

local LETTER, LINE, PAD = 7.2, 16, 8    -- of the font at 12 px; around text
local APART, LEVEL = 24, 36             -- between boxes, between layers

local function measure(node)
    local longest = 0
    for _, line in ipairs(node.lines) do longest = math.max(longest, utf8.len(line) or #line) end
    node.width = node.kind == "bend" and 8 or longest * LETTER + 2 * PAD
    node.height = node.kind == "bend" and 0 or #node.lines * LINE + 2 * PAD
end

-- Layers from the top; an input lies right above what reads it first.
local function layers_of(graph)
    local layers, deepest = {}, 1
    for _, node in ipairs(graph) do
        node.layer = 1
        for _, from in ipairs(node.above) do node.layer = math.max(node.layer, from.layer + 1) end
        deepest = math.max(deepest, node.layer)
    end
    for _, node in ipairs(graph) do
        if node.kind == "input" and #node.below > 0 then
            local first = deepest
            for _, to in ipairs(node.below) do first = math.min(first, to.layer) end
            node.layer = math.max(1, first - 1)
        end
    end
    for i = 1, deepest do layers[i] = {} end
    for _, node in ipairs(graph) do table.insert(layers[node.layer], node) end
    return layers
end

-- Gives every edge over several layers a bend in each; the lists of neighbours become those of neighbouring layers.
local function add_bends(graph, layers)
    local edges = {}
    for _, node in ipairs(graph) do
        for _, from in ipairs(node.above) do edges[#edges + 1] = {from, node} end
    end
    for _, node in ipairs(graph) do node.above, node.below = {}, {} end
    for _, edge in ipairs(edges) do
        local from, to = edge[1], edge[2]
        for layer = from.layer + 1, to.layer - 1 do
            local bend = {kind = "bend", lines = {}, above = {}, below = {}, layer = layer}
            table.insert(layers[layer], bend)
            connect(from, bend)
            from = bend
        end
        connect(from, to)
    end
end

local function mean_place(node, neighbours, key)
    if #neighbours == 0 then return node[key] end
    local total = 0
    for _, other in ipairs(neighbours) do total = total + other[key] end
    return total / #neighbours
end

local function number_layer(layer) for i, node in ipairs(layer) do node.place = i end end

-- Sorts the layers by the mean place of the neighbours above, then below, and again.
local function order_layers(layers)
    for _, layer in ipairs(layers) do number_layer(layer) end
    for pass = 1, 8 do
        local down = pass % 2 == 1
        for i = down and 1 or #layers, down and #layers or 1, down and 1 or -1 do
            for k, node in ipairs(layers[i]) do
                node.wanted, node.was = mean_place(node, down and node.above or node.below, "place"), k
            end
            table.sort(layers[i], function(a, b)
                if a.wanted ~= b.wanted then return a.wanted < b.wanted end
                return a.was < b.was
            end)
            number_layer(layers[i])
        end
    end
end

-- Puts the nodes of a layer as near to the wanted places as they can be side by side.
local function spread(layer)
    local right = -math.huge
    for _, node in ipairs(layer) do
        node.x = math.max(node.wanted, right + node.width / 2)
        right = node.x + node.width / 2 + APART
    end
    local left = math.huge
    local shift, count = 0, #layer
    for _, node in ipairs(layer) do shift = shift + node.wanted - node.x end
    for i = count, 1, -1 do
        local node = layer[i]
        node.x = math.min(node.x + shift / count, left - node.width / 2)
        left = node.x - node.width / 2 - APART
    end
end

local function place_layers(layers)
    local y = APART
    for _, layer in ipairs(layers) do
        local x, tallest = 0, 0
        for _, node in ipairs(layer) do
            measure(node)
            node.x, tallest = x + node.width / 2, math.max(tallest, node.height)
            x = x + node.width + APART
        end
        for _, node in ipairs(layer) do node.y = y + tallest / 2 end
        y = y + tallest + LEVEL
    end
    for pass = 1, 12 do
        local down = pass % 2 == 1
        for i = down and 1 or #layers, down and #layers or 1, down and 1 or -1 do
            for _, node in ipairs(layers[i]) do
                node.wanted = mean_place(node, down and node.above or node.below, "x")
            end
            spread(layers[i])
        end
    end
    return y
end

-- ---- SVG ----

local entities = {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;"}

local function escape(s) return (s:gsub('[&<>"]', entities)) end

-- Texts and numbers in place of every %s; numbers get one digit behind the point.
local function fill(format, ...)
    local values = {...}
    for i, value in ipairs(values) do
        if math.type(value) then values[i] = check.digits("%.1f", value) end
    end
    return format:format(table.unpack(values))
end

local function draw_box(out, node)
    local left, top = node.x - node.width / 2, node.y - node.height / 2
    out[#out + 1] = fill('<rect x="%s" y="%s" width="%s" height="%s" rx="5" fill="%s" stroke="#555"/>', left,
        top, node.width, node.height, colours[node.kind])
    for i, line in ipairs(node.lines) do
        out[#out + 1] = fill('<text x="%s" y="%s"%s>%s</text>', node.x, top + PAD + i * LINE - 4,
            i == 1 and ' font-weight="bold"' or ' fill="#444"', escape(line))
    end
end

-- From the lower edge of a node to the upper one of a node in the next layer; only a box has an arrow.
local function draw_edge(out, from, to)
    local x, y, u, v = from.x, from.y + from.height / 2, to.x, to.y - to.height / 2
    local arrow = to.kind ~= "bend" and ' marker-end="url(#a)"' or ""
    out[#out + 1] = fill('<path d="M%s %sC%s %s %s %s %s %s" fill="none" stroke="#777"%s/>', x, y, x,
        (y + v) / 2, u, (y + v) / 2, u, v, arrow)
end

---The picture as text.
---@return string
function M.svg(p)
    local graph = M.graph(p)
    local layers = layers_of(graph)
    add_bends(graph, layers)
    order_layers(layers)
    local height = place_layers(layers)
    local left, right, out = math.huge, -math.huge, {}
    for _, layer in ipairs(layers) do
        for _, node in ipairs(layer) do
            left, right = math.min(left, node.x - node.width / 2), math.max(right, node.x + node.width / 2)
        end
    end
    if left > right then left, right = 0, 0 end
    out[1] = fill('<svg xmlns="http://www.w3.org/2000/svg" viewBox="%s 0 %s %s" width="%s" height="%s" ' ..
        'font-family="monospace" font-size="12" text-anchor="middle">', left - APART, right - left + 2 * APART,
        height, ("%.0f"):format(right - left + 2 * APART), ("%.0f"):format(height))
    out[2] = '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" ' ..
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="#777"/></marker></defs>'
    out[3] = fill('<rect x="%s" width="%s" height="%s" fill="white"/>', left - APART, right - left + 2 * APART, height)
    for _, layer in ipairs(layers) do
        for _, node in ipairs(layer) do
            for _, to in ipairs(node.below) do draw_edge(out, node, to) end
        end
    end
    for _, node in ipairs(graph) do draw_box(out, node) end
    out[#out + 1] = "</svg>"
    return table.concat(out, "\n") .. "\n"
end

---Draws the program into an SVG file.
---@param path string
function Program:svg(path)
    io_.write("svg", path, M.svg(self))
end

check.methods(Program, "p", {"dot()", "svg(path: string)"}, program.is_program)

return check.strict("program_draw", M)
