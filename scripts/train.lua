-- train.lua -- trains a small GPT on text, one character or one token at a time.
--
--     flowlua scripts/train.lua                                         learns this project's own files
--     flowlua scripts/train.lua --data book.txt --checkpoint book.st    learns a book and keeps what it learnt
--     flowlua scripts/train.lua --resume book.st --steps 9000           goes on as if it had never stopped
--     flowlua scripts/train.lua --tokenizer gpt2 --data book.txt        learns the tokens of gpt2/tokenizer.json
--
-- The same script on several ranks, with the losses of one rank:
--
--     flowlua --ranks 4 scripts/train.lua                               every rank learns from its part of a batch
--     flowlua --ranks 4 scripts/train.lua --tp 4                        every rank holds its part of the model
--     flowlua --ranks 4 scripts/train.lua --dp 2 --tp 2 --zero          both, and each keeps a part of the parameters
--
-- With a key-value store each rank has a model of its own, pushes its gradients and pulls the parameters:
--
--     flowlua --ranks 4 scripts/train.lua --kvstore dist_sync           all ranks make a step together
--     flowlua --ranks 4 scripts/train.lua --kvstore dist_async          rank 3 serves, the others do not wait

local flow = require "flow"
local nn, optim, data, cli = flow.nn, flow.optim, flow.data, flow.cli

local EVERY = 250               -- steps between evaluations (and checkpoints)
local HELD_OUT = 0.1            -- the last part of the text is for validation
local WINDOWS = 384             -- pieces of it that an evaluation looks at

-- ---- options ----

local about = "train.lua: trains a GPT on text, by characters or tokens"
local options, given = cli.parse(arg, about, {
    {"--layers N", 4, "transformer blocks"},
    {"--width N", 128, "width of the residual stream"},
    {"--heads N", 4, "attention heads"},
    {"--context N", 64, "characters the model sees"},
    {"--batch N", 12, "pieces of text in a step"},
    {"--dropout X", 0.1, "part of the activations that is dropped"},
    {"--lr X", 3e-3, "highest learning rate"},
    {"--steps N", 3500, "steps in all, those before --resume included"},
    {"--schedule-steps N", nil, "length of the learning rate's schedule (default: --steps)"},
    {"--seed I", 1, "of the weights, the order of the data and the dropout"},
    {"--data FILE...", nil, "text to learn (default: this project's own sources and documents)"},
    {"--tokenizer P", nil, "a tokenizer.json or its folder: the model sees tokens in place of characters"},
    {"--checkpoint P", nil, ("file to save to every %d steps and at the end"):format(EVERY)},
    {"--resume P", nil, "goes on from a checkpoint; options that are not given are those of then"},
    {"--log FILE", nil, "CSV of every step: step,train_loss,val_loss,lr,seconds"},
    {"--sample C", 400, "characters that the model makes up at the end; 0: none"},
    {"--device D", "cpu", "cpu, cuda or cuda:1"},
    {"--dp N", nil, "ranks that share a batch (default: all ranks / --tp)"},
    {"--tp N", 1, "ranks that share the model: its heads, hidden units and characters"},
    {"--capture", false, "steps after the second are replayed: a little faster, the same losses"},
    {"--autocast T", nil, "bfloat16 or float16: products in it, the rest in float32; float16 with a scaled loss"},
    {"--recompute", false, "backward computes the blocks again: less memory, more time, the same losses"},
    {"--kvstore T", nil, "local, dist_sync or dist_async: the optimizer is on a store; ranks clip what they push"},
    {"--zero", false, "ranks that share a batch keep a part of parameters and optimizer each"},
})

-- ---- several ranks ----

local DATA, MODEL = 0, 1        -- hierarchy axes: ranks that share a batch, ranks that share the model

-- A store that updates the parameters; with servers, the other ranks are the world from here on.
local function new_store(o)
    for _, name in ipairs {"tp", "zero", "checkpoint", "resume", o.kvstore == "dist_async" and "capture" or nil} do
        if given[name] then cli.stop(arg, ("--%s and --kvstore %s do not go together"):format(name, o.kvstore)) end
    end
    if o.kvstore == "local" and flow.world_size() > 1 then
        cli.stop(arg, "--kvstore local is for one rank; several take dist_sync or dist_async")
    end
    local made, store = pcall(flow.kvstore.create, o.kvstore)
    if not made then cli.stop(arg, "--kvstore: " .. store:gsub("^[^\n]-:%d+: ", "", 1)) end
    if o.batch % store.num_workers ~= 0 then
        cli.stop(arg, ("--batch %d is no multiple of %d workers"):format(o.batch, store.num_workers))
    end
    return store
end

-- The ranks as `dp` groups of `tp`, or nil on one rank: there all tensors are local.
local function grid_of(o)
    local ranks = flow.world_size()
    local dp = o.dp or math.max(1, ranks // o.tp)
    if dp * o.tp ~= ranks then
        local fits = {}
        for tp = 1, ranks do
            if ranks % tp == 0 then fits[#fits + 1] = ("--dp %d --tp %d"):format(ranks // tp, tp) end
        end
        local there = ranks == 1 and "is 1; start the script with flowlua --ranks " .. dp * o.tp
            or ("are %d; what fits: %s"):format(ranks, table.concat(fits, ", "))
        cli.stop(arg, ("--dp %d --tp %d needs %d ranks, and there %s"):format(dp, o.tp, dp * o.tp, there))
    end
    o.dp = dp
    if ranks == 1 then return nil end
    if o.device:find ":" then
        local each = ("each of the %d ranks drives its own: --device cuda"):format(ranks)
        cli.stop(arg, ("--device %s is one GPU, and %s"):format(o.device, each))
    end
    local grid = {}
    for i = 1, dp do
        grid[i] = {}
        for j = 1, o.tp do grid[i][j] = (i - 1) * o.tp + j - 1 end
    end
    return flow.placement(o.device, grid)
end

local store = options.kvstore and new_store(options)
local sharers = grid_of(options)                -- of a batch
local grid = not store and sharers or nil       -- of the model
local everywhere = grid and {placement = grid, sbp = {"B", "B"}} or {device = options.device}

-- ---- going on ----

-- A checkpoint may come from another program or be made to do harm: nothing of it is used before it has the form that
-- `save` below gives it, and options that name files to write never come from there.

-- Ends the script with what a function of flow has failed with. One of several ranks may be the only one.
local function stop_with(message)
    if flow.world_size() > 1 then error(message, 0) end
    cli.stop(arg, (tostring(message):gsub("^[^\n]-:%d+: ", "", 1)))
end

local function stop_at(what) cli.stop(arg, ("%s: %s"):format(options.resume, what)) end

local function whole(least, most)
    local kind = least < 0 and "a whole number" or ("a whole number from %d to %d"):format(least, most)
    return function(v) return math.type(v) == "integer" and v >= least and v <= most end, kind
end

local function number(most)
    return function(v) return type(v) == "number" and v >= 0 and v <= most end, ("a number from 0 to %g"):format(most)
end

local function of_type(kind)
    return function(v) return type(v) == kind end, "a " .. kind
end

local function paths(v)
    if v == nil then return true end
    if type(v) ~= "table" or #v == 0 then return false end
    for key, path in pairs(v) do
        if math.type(key) ~= "integer" or type(path) ~= "string" then return false end
    end
    return true
end

local function path_or_nothing(v) return v == nil or type(v) == "string" end

local COUNT, STEPS, ANY = (1 << 31) - 1, 1 << 53, math.maxinteger
local FORM = {
    {"step", whole(1, STEPS)}, {"seconds", number(1e15)}, {"hash", of_type "string"}, {"options", of_type "table"},
    {"model", of_type "table"}, {"optimizer", of_type "table"}, {"train", of_type "table"}, {"random", of_type "table"},
    {"train.epoch", whole(0, STEPS)}, {"train.position", whole(0, STEPS)}, {"train.seed", whole(math.mininteger, ANY)},
    {"random.seed", whole(math.mininteger, ANY)}, {"random.counter", whole(math.mininteger, ANY)},
}
local OPTIONS = {
    {"layers", whole(1, COUNT)}, {"width", whole(1, COUNT)}, {"heads", whole(1, COUNT)}, {"context", whole(1, COUNT)},
    {"batch", whole(1, COUNT)}, {"seed", whole(math.mininteger, ANY)}, {"dropout", number(1)}, {"lr", number(1e15)},
    {"steps", whole(1, STEPS)}, {"schedule_steps", whole(1, STEPS)}, {"data", paths, "a list of paths"},
    {"tokenizer", path_or_nothing, "a path"},
}

-- Every field of `form` is in the table, and has its kind.
local function check_form(t, form, prefix)
    for _, field in ipairs(form) do
        local outer, name = field[1]:match("^(%w+)%.(.*)$")
        local value = outer and t[outer][name]
        if not outer then value = t[field[1]] end
        if not field[2](value) then stop_at(("%s%s must be %s"):format(prefix, field[1], field[3])) end
    end
end

-- True if the sizes that the options give are those of the tensors in the file: the model takes no more memory then.
local function check_sizes(model, o)
    local function check_matrix(name, rows, columns)
        local t = model[name]
        local is_tensor = type(t) == "table" and type(t.read) == "function"     -- plain data have no methods
        if not is_tensor or #t.shape ~= 2 or (rows and t.shape[1] ~= rows) or t.shape[2] ~= columns then
            stop_at(("its options do not fit its model: there is no '%s' of [%s, %d]"):format(name,
                rows or "characters", columns))
        end
    end
    if o.width % o.heads ~= 0 then stop_at("its options do not fit: width must be a multiple of heads") end
    check_matrix("characters.weight", nil, o.width)
    check_matrix("positions.weight", o.context, o.width)
    for i = 1, o.layers do check_matrix(("blocks.%d.mlp.1.weight"):format(i), 4 * o.width, o.width) end
end

local function read_checkpoint(path)
    local loaded, saved = pcall(flow.load, path, {lazy = true})
    if not loaded then stop_with(saved) end
    if saved.kind ~= "train.lua" then cli.stop(arg, path .. " is not a checkpoint of this script") end
    check_form(saved, FORM, "")
    check_form(saved.options, OPTIONS, "options.")
    check_sizes(saved.model, saved.options)
    return saved
end

local saved = options.resume and read_checkpoint(options.resume)
if saved then
    for _, key in ipairs {"layers", "width", "heads", "context", "batch", "seed"} do
        if given[key] and options[key] ~= saved.options[key] then
            cli.stop(arg, ("--%s was %d and cannot change on the way"):format(key, saved.options[key]))
        end
    end
    for _, field in ipairs(OPTIONS) do
        if not given[field[1]] then options[field[1]] = saved.options[field[1]] end
    end
end
options.schedule_steps = options.schedule_steps or options.steps
if options.heads % options.tp ~= 0 then
    cli.stop(arg, ("--heads %d cannot be split over --tp %d: it must be a multiple"):format(options.heads, options.tp))
end

local low = options.autocast
if low and low ~= "bfloat16" and low ~= "float16" then
    cli.stop(arg, ("--autocast takes bfloat16 or float16, got '%s'"):format(low))
elseif low == "float16" and options.kvstore then
    cli.stop(arg, "--autocast float16 and --kvstore do not go together: a store has no scaled gradients; take bfloat16")
end

-- ---- the model ----

-- A border between parts that the ranks of MODEL compute together: whole on each of them.
local function border(x)
    return options.tp > 1 and nn.pin(x, "B", MODEL) or x
end

local Block = nn.Module:extend("Block")

function Block:init(o)
    self.norm1 = nn.LayerNorm(o.width)
    self.attention = nn.CausalSelfAttention(o.width, o.heads, {dropout = o.dropout})
    self.norm2 = nn.LayerNorm(o.width)
    self.mlp = nn.Sequential(nn.Linear(o.width, 4 * o.width), nn.GELU(), nn.Linear(4 * o.width, o.width))
    self.dropout = nn.Dropout(o.dropout)
end

function Block:forward(x)                       -- x [batch, time, width]
    x = x + self.dropout(border(self.attention(border(self.norm1(x)))))
    return x + self.dropout(border(self.mlp(border(self.norm2(x)))))
end

local GPT = nn.Module:extend("GPT")

function GPT:init(characters, o)
    self.characters = nn.Embedding(characters, o.width)
    self.positions = nn.Embedding(o.context, o.width)
    self.dropout = nn.Dropout(o.dropout)
    self.blocks = nn.ModuleList()
    for _ = 1, o.layers do self.blocks:append(Block(o)) end
    self.norm = nn.LayerNorm(o.width)
    self.head = nn.Linear(o.width, characters)
    for _, p in self:named_parameters() do
        if p:dim() == 2 then nn.init.normal(p, 0, 0.02) end
    end
end

function GPT:forward(x)                         -- x [batch, time] of character numbers
    local places = flow.arange(x:size(1), nn.like(x))
    local h = self.dropout(border(self.characters(x)) + self.positions(places))
    for _, block in ipairs(self.blocks) do h = options.recompute and flow.checkpoint(block, h) or block(h) end
    return self.head(border(self.norm(h)))      -- logits [batch, time, characters]
end

-- The split of the parameters over MODEL: products whose rows (heads, hidden units, characters) are computed apart, and
-- those that sum over them.
local rules = options.tp > 1 and {
    {"qkv", {"B", "S(0)"}}, {"projection%.weight", {"B", "S(1)"}},
    {"mlp%.1", {"B", "S(0)"}}, {"mlp%.3%.weight", {"B", "S(1)"}},
    {"characters", {"B", "S(0)"}}, {"head", {"B", "S(0)"}},
} or {}

local function new_model(characters)
    local model = GPT(characters, options)
    if not grid then return model:to(options.device) end
    return model:to_global{placement = grid, rules = rules, zero = options.zero and DATA or nil}
end

local function loss_of(model, batch)
    local x, y = batch[1], batch[2]
    if store and sharers then x, y = x:to_local(), y:to_local() end
    local logits = model(x)
    -- Unequal parts of a batch are no equal parts of its characters: they stay where they are as rows of a matrix.
    if grid and x:size(0) % options.dp ~= 0 then return flow.cross_entropy(logits:transpose(1, 2), y) end
    return flow.cross_entropy(logits:flatten(0, 1), y:flatten())
end

-- ---- the text ----

-- The project's own files, in an order that mixes them, so that the held out part is like the rest.
local function own_files()
    local root = (arg[0]:match("^(.*)/[^/]*$") or ".") .. "/.."
    local kinds = {c = true, h = true, def = true, inc = true, cu = true, lua = true, sh = true, md = true}
    local files = {}
    for _, path in ipairs(data.files(root)) do
        local folder = path:match("^([^/]*)/")
        local wanted = not folder or folder == "src" or folder == "scripts" or folder == "tests"
        if wanted and kinds[path:match("%.(%w+)$")] then files[#files + 1] = path end
    end
    table.sort(files, function(a, b) return data.hash(a) < data.hash(b) end)
    for i, path in ipairs(files) do files[i] = root .. "/" .. path end
    return files
end

local read, bytes = pcall(data.read, options.data or own_files())
if not read then stop_with(bytes) end

-- The tokens of the text, the size of the vocabulary, and a token to begin with.
local function read_text()
    if options.tokenizer then
        local made, tokenizer = pcall(data.tokenizer, options.tokenizer)
        if not made then stop_with(tokenizer) end
        local tokens = tokenizer:encode(bytes, {add_special_tokens = false, dtype = "int32"})
        local first = tokens:numel() > 0 and tokens[0]:item() or 0
        return {reader = tokenizer, tokens = tokens, size = #tokenizer, first = first, unit = "tokens", each = "token",
            hash = data.hash(tokens:tobytes())}
    end
    local text = data.text(bytes)
    return {reader = text, tokens = text.tokens, size = #text.characters, first = text.numbers["\n"] or 0,
        unit = "characters", each = "char", hash = data.hash(bytes)}
end

local text = read_text()
if saved and saved.hash ~= text.hash then
    cli.stop(arg, "the text is not the one that the checkpoint has learnt from")
end
local count = text.tokens:numel()
local held_out = math.floor(count * HELD_OUT)
if held_out < options.context + 1 then cli.stop(arg, ("%d %s of text are too few"):format(count, text.unit)) end

-- Batches come to the device while the step before runs.
local batch_device = not sharers and options.device or nil
local batch_sbp = sharers and {options.dp > 1 and "S(0)" or "B", "B"}
local train = data.loader(data.windows(text.tokens:narrow(0, 0, count - held_out), options.context),
    {batch_size = options.batch, shuffle = true, seed = options.seed, device = batch_device,
        placement = sharers, sbp = batch_sbp})

local validation = data.loader(
    data.windows(text.tokens:narrow(0, count - held_out, held_out), options.context,
        {stride = math.max(1, (held_out - options.context - 1) // WINDOWS)}),
    {batch_size = options.batch, device = batch_device, placement = sharers, sbp = batch_sbp})

-- ---- evaluation and sampling, with random numbers of their own ----

-- A number of each worker, added up.
local function over_workers(x)
    local part = flow.full({}, x, {dtype = "float64"})
    return part:to_global{placement = flow.placement.all "cpu", sbp = "P"}:item()
end

local function evaluate(model)
    local _ <close> = flow.no_grad()
    local _ <close> = flow.with_generator(flow.generator(options.seed))
    model:eval()
    local total, pieces = 0, 0
    for batch in validation do
        local size = (store and sharers and batch[1]:to_local() or batch[1]):size(0)
        if size > 0 then total, pieces = total + loss_of(model, batch):item() * size, pieces + size end
    end
    model:train()
    if store then total, pieces = over_workers(total), over_workers(pieces) end
    return total / pieces
end

local function choose(probabilities)
    local x = flow.rand(1):item()
    for i, p in ipairs(probabilities) do
        x = x - p
        if x < 0 then return i - 1 end
    end
    return #probabilities - 1
end

local function sample(model, length)
    local _ <close> = flow.no_grad()
    local _ <close> = flow.with_generator(flow.generator(options.seed))
    model:eval()
    local tokens = {text.first}
    for i = 1, length do
        local seen = {table.unpack(tokens, math.max(1, i - options.context + 1))}
        local logits = model(flow.tensor({seen}, everywhere))[{0, -1}]
        tokens[i + 1] = choose((logits / 0.8):softmax(0):totable())
    end
    model:train()
    return text.reader:decode(table.move(tokens, 2, #tokens, 1, {}))
end

-- ---- training ----

flow.manual_seed(options.seed)
local model = new_model(text.size)

local names, params = {}, {}
for name, p in model:named_parameters() do names[#names + 1], params[#params + 1] = name, p end

-- The optimizer on the store, which has a key for each parameter. All workers begin with the first one's.
if store then
    store:init(names, params)
    store:set_optimizer(function(_, p)
        return optim.AdamW({p}, {lr = options.lr, betas = {0.9, 0.99}, weight_decay = p:dim() >= 2 and 0.1 or 0})
    end)
    store:pull(names, params)
end

local matrices, others = {}, {}                 -- only matrices decay
for _, p in model:named_parameters() do table.insert(p:dim() >= 2 and matrices or others, p) end
local optimizer = optim.AdamW({{params = matrices, weight_decay = 0.1}, {params = others, weight_decay = 0}},
    {lr = options.lr, betas = {0.9, 0.99}})

local rate = optim.schedule.warmup_cosine(options.schedule_steps,
    {warmup = math.min(100, options.schedule_steps // 10), least = 0.1})

local first, seconds_before = 1, 0
if saved then
    local taken, message = pcall(function()
        model:load_state_dict(saved.model)
        optimizer:load_state_dict(saved.optimizer)
        train:load_state(saved.train)
        flow.default_generator():load_state(saved.random)
    end)
    if not taken then stop_with(message) end
    first, seconds_before = saved.step + 1, saved.seconds
end

-- Rank 0's number: what the ranks save must be the same, and each has a clock of its own.
local function of_first(x)
    local part = flow.full({}, flow.rank() == 0 and x or 0, {dtype = "float64"})
    return part:to_global{placement = flow.placement.all "cpu", sbp = "P"}:item()
end

-- The state right after a step, with the options that a run that goes on takes up.
local function save(step, seconds)
    local o = options
    flow.save(o.checkpoint, {
        kind = "train.lua", step = step, seconds = of_first(seconds), hash = text.hash,
        options = {
            layers = o.layers, width = o.width, heads = o.heads, context = o.context, batch = o.batch, seed = o.seed,
            dropout = o.dropout, lr = o.lr, steps = o.steps, schedule_steps = o.schedule_steps, data = o.data,
            tokenizer = o.tokenizer,
        },
        model = model:state_dict(), optimizer = optimizer:state_dict(), train = train:state(),
        random = flow.default_generator():state(),
    })
end

-- The log of a run that goes on keeps its rows up to where it goes on.
local function open_log(path)
    local rows = {"step,train_loss,val_loss,lr,seconds"}
    local there, old = pcall(data.read, path)
    if first > 1 and there and old:match("^[^\n]*") == rows[1] then
        for row in old:gmatch("\n([^\n]+)") do
            local step = tonumber(row:match("^%d+"))
            if step and step < first then rows[#rows + 1] = row end
        end
    end
    local log = assert(io.open(path, "w"))
    assert(log:write(table.concat(rows, "\n"), "\n"))
    return log
end

local log = options.log and flow.rank() == 0 and open_log(options.log)
local bar = flow.progress.bar(options.steps, {start = first - 1})
bar:print(("%d %s of text (%d different), %d held out; %d parameters"):format(count, text.unit, text.size, held_out,
    model:count_parameters()))

local function training_loss(x, y)
    if not options.autocast then return loss_of(model, {x, y}) end
    return flow.autocast(options.autocast, loss_of, model, {x, y})
end

-- One step on a batch; returns the loss.
local function learn(x, y)
    local loss = training_loss(x, y)
    optimizer:zero_grad()
    loss:backward()
    optim.clip_grad_norm(model:parameters(), 1)
    optimizer:step()
    return loss
end

-- The same with gradients of float16, which a factor on the loss keeps in its range.
local scaler = flow.GradScaler {enabled = options.autocast == "float16"}
local function learn_scaled(x, y)
    local loss = training_loss(x, y)
    optimizer:zero_grad()
    scaler:scale(loss):backward()
    scaler:unscale_(optimizer)
    optim.clip_grad_norm(model:parameters(), 1)
    scaler:step(optimizer)
    scaler:update()
    return loss
end
if scaler:is_enabled() then learn = learn_scaled end

-- The same with a store. A worker's part of a batch is a part of a step where all make it together, and a step of its
-- own where they do not.
local function learn_with_store(x, y)
    local loss = training_loss(x, y)
    optimizer:zero_grad()
    loss:backward()
    optim.clip_grad_norm(params, 1)
    local grads, share = {}, store.type == "dist_sync" and 1 / store.num_workers or 1
    for i, p in ipairs(params) do grads[i] = p.grad * share end
    store:pushpull(names, grads, params)
    return loss
end
if store then learn = learn_with_store end
if options.capture then learn = flow.capture(learn, {strict = not scaler:is_enabled()}) end
local updater = store or optimizer

local val_loss
for step = first, options.steps do
    local lr = options.lr * rate(step - 1)
    updater:set_lr(lr)
    local loss = learn(table.unpack(train:next()))

    local train_loss, seconds = loss:item(), seconds_before + bar:seconds()
    bar:update(step, ("loss %.3f"):format(train_loss))
    val_loss = nil
    if step % EVERY == 0 or step == options.steps then
        val_loss = evaluate(model)
        bar:print(("step %d: validation loss %.3f nats/%s"):format(step, val_loss, text.each))
        if options.checkpoint then save(step, seconds) end
    end
    if log then
        local val = val_loss and ("%.9g"):format(val_loss) or ""
        assert(log:write(("%d,%.9g,%s,%.9g,%.9g\n"):format(step, train_loss, val, lr, seconds)))
        assert(log:flush())
    end
end
bar:clear()

local steps_per_second, seconds = bar:rate(), bar:seconds()
if options.sample > 0 then flow.print("\nsample:\n" .. sample(model, options.sample) .. "\n") end
flow.print(("validation loss %.3f nats/%s, %.1f steps/s, %.0f s"):format(
    val_loss or evaluate(model), text.each, steps_per_second, seconds))
