-- nn_loss.lua -- losses and distances of flow.nn beside those that nn.lua has.

local flow = require "flow"
local check = require "flow.check"
local define = require "flow.nn_class"

local classes = {}

local REDUCTION = "reduction: mean|sum|none = mean"
local INPUT_TARGET = "input: tensor, target: tensor"

-- Name, function, parameters of both, operands of forward.
local losses = {
    {"L1Loss", "l1_loss", REDUCTION},
    {"SmoothL1Loss", "smooth_l1_loss", REDUCTION .. ", beta: number >= 0 = 1"},
    {"HuberLoss", "huber_loss", REDUCTION .. ", delta: number >= 0 = 1"},
    {"NLLLoss", "nll_loss", "weight: tensor?, ignore_index: integer = -100, " .. REDUCTION},
    {"BCELoss", "binary_cross_entropy", "weight: tensor?, " .. REDUCTION},
    {"BCEWithLogitsLoss", "binary_cross_entropy_with_logits",
        "weight: tensor?, " .. REDUCTION .. ", pos_weight: tensor?"},
    {"KLDivLoss", "kl_div", "reduction: mean|sum|none|batchmean = mean, log_target: boolean = false"},
    {"GaussianNLLLoss", "gaussian_nll_loss", "full: boolean = false, eps: number = 1e-6, " .. REDUCTION,
        "input: tensor, target: tensor, var: tensor or number"},
    {"PoissonNLLLoss", "poisson_nll_loss", "log_input: boolean = true, full: boolean = false, eps: number = 1e-8, " ..
        REDUCTION},
    {"HingeEmbeddingLoss", "hinge_embedding_loss", "margin: number = 1, " .. REDUCTION},
    {"SoftMarginLoss", "soft_margin_loss", REDUCTION},
    {"MultiLabelMarginLoss", "multilabel_margin_loss", REDUCTION},
    {"MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss", "weight: tensor?, " .. REDUCTION},
    {"MultiMarginLoss", "multi_margin_loss", "p: integer = 1, margin: number = 1, weight: tensor?, " .. REDUCTION},
    {"MarginRankingLoss", "margin_ranking_loss", "margin: number = 0, " .. REDUCTION,
        "input1: tensor, input2: tensor, target: tensor"},
    {"CosineEmbeddingLoss", "cosine_embedding_loss", "margin: number = 0, " .. REDUCTION,
        "input1: tensor, input2: tensor, target: tensor"},
    {"TripletMarginLoss", "triplet_margin_loss", "margin: number = 1, p: number = 2, eps: number = 1e-6, " ..
        "swap: boolean = false, " .. REDUCTION, "anchor: tensor, positive: tensor, negative: tensor"},
    {"CosineSimilarity", "cosine_similarity", "axis: integer = 1, eps: number = 1e-8", "x1: tensor, x2: tensor"},
    {"PairwiseDistance", "pairwise_distance", "p: number = 2, eps: number = 1e-6, keepdim: boolean = false",
        "x1: tensor, x2: tensor"},
}

for _, row in ipairs(losses) do
    local name, op, parameters, operands = row[1], row[2], row[3], row[4] or INPUT_TARGET
    local names, count = {}, select(2, operands:gsub(": ", ""))
    for field in parameters:gmatch "([%w_]+): " do names[#names + 1] = field end
    classes[name] = define(name, parameters, operands, function(self, ...)
        local options, args = {}, {...}
        for _, field in ipairs(names) do options[field] = self[field] end
        args[count + 1] = options
        return flow[op](table.unpack(args, 1, count + 1))
    end)
end

-- ---- sequences ----

-- A list of lengths as a tensor.
local function lengths_of(lengths)
    return check.is_tensor(lengths) and lengths or flow.tensor(lengths)
end

classes.CTCLoss = define("CTCLoss", "blank: integer >= 0 = 0, " .. REDUCTION .. ", zero_infinity: boolean = false",
    "log_probs: tensor, targets: tensor, input_lengths: tensor or list, target_lengths: tensor or list",
    function(self, log_probs, targets, input_lengths, target_lengths)
        return flow.ctc_loss(log_probs, targets, lengths_of(input_lengths), lengths_of(target_lengths), self.blank,
            self.reduction, self.zero_infinity)
    end)

-- ---- triplets with a distance of the script's own ----

classes.TripletMarginWithDistanceLoss = define("TripletMarginWithDistanceLoss",
    "distance_function: function?, margin: number = 1, swap: boolean = false, " .. REDUCTION,
    "anchor: tensor, positive: tensor, negative: tensor", function(self, anchor, positive, negative)
        return flow.nn.functional.triplet_margin_with_distance_loss(anchor, positive, negative, {
            distance_function = self.distance_function, margin = self.margin, swap = self.swap,
            reduction = self.reduction,
        })
    end)

return classes
