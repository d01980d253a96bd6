-- mnist_spec.lua -- scripts/mnist.lua learns from IDX files that this spec draws.

local flowlua = os.getenv("FLOWLUA") or "build/flowlua"
local folder

-- Ten digits as a display with seven segments shows them: top, upper left, upper right, middle, lower left, lower
-- right, bottom.
local segments = {
    [0] = "1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010", "1111111", "1111011",
}

local random = 1
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

local function write_split(name, count, compress)
    local images, labels = {}, {}
    for i = 1, count do
        local digit = draw(10)
        images[i], labels[i] = image(digit), string.char(digit)
    end
    local function write(file_name, bytes)
        local file = assert(io.open(folder .. "/" .. file_name, "wb"))
        file:write(bytes)
        file:close()
        if compress then assert(os.execute("gzip -f " .. folder .. "/" .. file_name)) end
    end
    write(name .. "-images-idx3-ubyte", (">I4I4I4I4"):pack(0x803, count, 8, 8) .. table.concat(images))
    write(name .. "-labels-idx1-ubyte", (">I4I4"):pack(0x801, count) .. table.concat(labels))
end

local function run(arguments)
    local pipe = io.popen(("%s scripts/mnist.lua %s 2>&1"):format(flowlua, arguments))
    local output = pipe:read("a")
    return output, pipe:close() == true
end

setup(function()
    folder = os.tmpname()
    os.remove(folder)
    assert(os.execute("mkdir -p " .. folder))
end)
teardown(function() os.execute("rm -rf " .. folder) end)

describe("mnist.lua", function()
    for _, compress in ipairs {false, true} do
        it("learns digits from " .. (compress and "compressed" or "plain") .. " files", function()
            os.execute("rm -f " .. folder .. "/*")
            write_split("train", 1500, compress)
            write_split("t10k", 300, false)
            local output, ok = run(folder .. " --epochs 6 --lr 5e-3 --checkpoint " .. folder .. "/net.st")
            assert.is_true(ok, output)
            local accuracy = tonumber(output:match("test accuracy ([%d.]+) %%, [%d.]+ steps/s, [^\n]*\n$"))
            assert.is_true(accuracy and accuracy > 90, output)
            local flow = require "flow"
            assert.are.same({128, 64}, flow.load(folder .. "/net.st")["1.weight"].shape)
        end)
    end

    it("says what is missing", function()
        local output, ok = run("")
        assert.is_false(ok)
        assert.are.equal("mnist.lua: needs the folder of the IDX files (see --help)\n", output)
        output, ok = run("/nowhere")
        assert.is_false(ok)
        assert.matches("mnist: neither train%-images%-idx3%-ubyte nor train%-images%-idx3%-ubyte.gz is in /nowhere", output)
        output, ok = run(folder .. " --epoch 3")
        assert.is_false(ok)
        assert.are.equal("mnist.lua: unknown option '--epoch'; did you mean '--epochs'? (see --help)\n", output)
    end)

    it("refuses files that do not belong together", function()
        os.execute("rm -f " .. folder .. "/*")
        write_split("train", 20)
        write_split("t10k", 10)
        assert(os.execute(("cp %s/t10k-labels-idx1-ubyte %s/train-labels-idx1-ubyte"):format(folder, folder)))
        local output, ok = run(folder)
        assert.is_false(ok)
        assert.matches("the train images and labels in .* do not belong together: %[20, 8, 8%] and %[10%]", output)
    end)
end)
