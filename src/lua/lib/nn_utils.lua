-- nn_utils.lua -- flow.nn.utils: helpers beside layers, in files that are loaded at their first use.

local check = require "flow.check"
local lazy_names = require "flow.lazy_names"

local M = lazy_names.add({}, {
    nn_rnn_utils = "rnn",
    nn_parametrize = "parametrize parametrizations",
    nn_prune = "prune",
    nn_utils_fuse = "fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights",
    nn_utils_grad = "clip_grad_norm_ get_total_norm clip_grads_with_norm_ clip_grad_value_ parameters_to_vector " ..
        "vector_to_parameters weight_norm remove_weight_norm spectral_norm remove_spectral_norm",
})

return {utils = check.strict("nn.utils", M)}
