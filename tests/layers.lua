-- layers.lua -- constructors and inputs of every class of nn, for specs that go through all of them; a class that is not here
-- fails those.
local flow = require "flow"
local lazy_names = require "flow.lazy_names"

for _, name in ipairs(lazy_names.of(flow.nn)) do assert(flow.nn[name]) end

local function image() return flow.randn(2, 3, 8, 8) end
local function series() return flow.randn(2, 3, 8) end
local function volume() return flow.randn(2, 3, 4, 4, 4) end
local function row() return flow.randn(2, 6) end
local function sequence() return flow.randn(5, 2, 3) end
local function two() return flow.randn(2, 6), flow.randn(2, 6) end
local function three() return flow.randn(2, 6), flow.randn(2, 6), flow.randn(2, 6) end
local function attended() return flow.randn(4, 2, 6), flow.randn(3, 2, 6), flow.randn(3, 2, 6) end
local function both() return flow.randn(4, 2, 6), flow.randn(3, 2, 6) end
return {
    Linear = {{6, 4}, row}, Embedding = {{10, 4}, function() return flow.tensor {{1, 2}, {3, 9}} end},
    LayerNorm = {{6}, row}, Dropout = {{0.5}, row}, GELU = {{}, row}, Softmax = {{}, row}, ReLU = {{}, row}, SiLU = {{}, row},
    Tanh = {{}, row}, Sigmoid = {{}, row}, Identity = {{}, row}, Flatten = {{}, image},
    Conv1d = {{3, 4, 3, {padding = 1, padding_mode = "circular"}}, series}, Conv2d = {{3, 4, 3, {padding = 1, groups = 1}}, image},
    Conv3d = {{3, 2, 2}, volume}, ConvTranspose1d = {{3, 4, 3, {stride = 2}}, series},
    ConvTranspose2d = {{3, 2, 3}, image}, ConvTranspose3d = {{3, 2, 2}, volume},
    MaxPool1d = {{2}, series}, MaxPool2d = {{2}, image}, MaxPool3d = {{2}, volume},
    AvgPool1d = {{2}, series}, AvgPool2d = {{2}, image}, AvgPool3d = {{2}, volume},
    LPPool1d = {{2, 2}, series}, LPPool2d = {{2, 2}, image}, LPPool3d = {{2, 2}, volume},
    AdaptiveAvgPool1d = {{3}, series}, AdaptiveAvgPool2d = {{{3, 2}}, image}, AdaptiveAvgPool3d = {{1}, volume},
    AdaptiveMaxPool1d = {{3}, series}, AdaptiveMaxPool2d = {{{3, 2}}, image}, AdaptiveMaxPool3d = {{1}, volume},
    MaxUnpool1d = {{2}, function() return flow.max_pool1d_with_indices(series(), 2) end},
    MaxUnpool2d = {{2}, function() return flow.max_pool2d_with_indices(image(), 2) end},
    MaxUnpool3d = {{2}, function() return flow.max_pool3d_with_indices(volume(), 2) end},
    FractionalMaxPool2d = {{2, {output_size = 3}}, image}, FractionalMaxPool3d = {{2, {output_ratio = 0.5}}, volume},
    AdaptiveLogSoftmaxWithLoss = {{6, 9, {3, 6}, {div_value = 2}}, function() return flow.randn(2, 6), flow.tensor {1, 7} end},
    LinearCrossEntropyLoss = {{6, 4, {bias = true}}, function() return flow.randn(2, 6), flow.tensor {1, 3} end},
    BatchNorm1d = {{3}, series}, BatchNorm2d = {{3}, image}, BatchNorm3d = {{3}, volume}, SyncBatchNorm = {{3}, image},
    InstanceNorm1d = {{3}, series}, InstanceNorm2d = {{3, {affine = true}}, image},
    InstanceNorm3d = {{3, {track_running_stats = true}}, volume},
    GroupNorm = {{3, 6}, row}, RMSNorm = {{6}, row}, LocalResponseNorm = {{2}, image},
    ConstantPad1d = {{1, 2}, series}, ConstantPad2d = {{1, 0.5}, image}, ConstantPad3d = {{1, 2}, volume},
    ZeroPad1d = {{1}, series}, ZeroPad2d = {{{1, 2, 0, 1}}, image}, ZeroPad3d = {{1}, volume},
    ReflectionPad1d = {{1}, series}, ReflectionPad2d = {{1}, image}, ReflectionPad3d = {{1}, volume},
    ReplicationPad1d = {{1}, series}, ReplicationPad2d = {{1}, image}, ReplicationPad3d = {{1}, volume},
    CircularPad1d = {{1}, series}, CircularPad2d = {{1}, image}, CircularPad3d = {{1}, volume},
    Upsample = {{{scale_factor = 2}}, image}, UpsamplingNearest2d = {{{size = 5}}, image},
    UpsamplingBilinear2d = {{{scale_factor = 2}}, image}, PixelShuffle = {{2}, function() return flow.randn(2, 4, 3, 3) end},
    PixelUnshuffle = {{2}, image}, ChannelShuffle = {{3}, image}, Unfold = {{{2, 3}, {padding = 1}}, image},
    Fold = {{{4, 5}, {2, 3}}, function() return flow.randn(2, 12, 9) end},
    CausalSelfAttention = {{8, 2}, function() return flow.randn(2, 5, 8) end},
    CrossEntropyLoss = {{}, function() return flow.randn(2, 6), flow.tensor {1, 5} end},
    MSELoss = {{}, function() return flow.randn(2, 6), flow.randn(2, 6) end},
    MultiheadAttention = {{6, 2}, attended}, RotaryEmbedding = {{6}, row}, SinusoidalPositions = {{6}, row},
    ALiBi = {{2}}, KVCache = {{}},
    TransformerEncoderLayer = {{6, 2, {dim_feedforward = 8}}, function() return flow.randn(4, 2, 6) end},
    TransformerDecoderLayer = {{6, 2, {dim_feedforward = 8}}, both}, Transformer = {{6, 2, 1, 1, {dim_feedforward = 8}}, both},
    TransformerEncoder = {}, TransformerDecoder = {}, -- copies of layers: parts of Transformer
    LSTM = {{3, 4, 2, {bidirectional = true}}} --[[ its states are a table ]], GRU = {{3, 4}, sequence}, RNN = {{3, 4}, sequence},
    RNNBase = {{"GRU", 3, 4}, sequence}, LSTMCell = {{6, 4}, row}, GRUCell = {{6, 4}, row}, RNNCell = {{6, 4}, row},
    ELU = {{}, row}, CELU = {{0.5}, row}, SELU = {{}, row}, LeakyReLU = {{0.2}, row}, Hardtanh = {{}, row}, ReLU6 = {{}, row},
    Hardsigmoid = {{}, row}, Hardswish = {{}, row}, Mish = {{}, row}, Threshold = {{0.5, 2}, row}, Hardshrink = {{}, row},
    Softshrink = {{}, row}, Tanhshrink = {{}, row}, Softplus = {{}, row}, Softsign = {{}, row}, LogSigmoid = {{}, row},
    GLU = {{}, row}, Softmin = {{}, row}, LogSoftmax = {{}, row}, Softmax2d = {{}, image}, RReLU = {{}, row}, PReLU = {{6}, row},
    Dropout1d = {{}, function() return flow.randn(2, 3, 4) end}, Dropout2d = {{}, image},
    Dropout3d = {{}, function() return flow.randn(2, 3, 2, 2, 2) end}, AlphaDropout = {{}, row}, FeatureAlphaDropout = {{}, image},
    L1Loss = {{}, two}, SmoothL1Loss = {{}, two}, HuberLoss = {{}, two},
    NLLLoss = {{}, function() return flow.randn(2, 6), flow.tensor {1, 5} end},
    BCELoss = {{}, function() return flow.rand(2, 6), flow.rand(2, 6) end}, BCEWithLogitsLoss = {{}, two}, KLDivLoss = {{}, two},
    GaussianNLLLoss = {{}, function() return flow.randn(2, 6), flow.randn(2, 6), flow.rand(2, 6) end},
    PoissonNLLLoss = {{}, two}, HingeEmbeddingLoss = {{}, two}, SoftMarginLoss = {{}, two}, MultiLabelSoftMarginLoss = {{}, two},
    MultiLabelMarginLoss = {{}, function() return flow.randn(2, 3), flow.tensor {{0, -1, 2}, {1, 2, -1}} end},
    MultiMarginLoss = {{}, function() return flow.randn(2, 6), flow.tensor {1, 5} end},
    MarginRankingLoss = {{}, three}, CosineEmbeddingLoss = {{}, function() return flow.randn(2, 6), flow.randn(2, 6), flow.tensor {1, -1} end},
    TripletMarginLoss = {{}, three}, TripletMarginWithDistanceLoss = {{}, three}, CosineSimilarity = {{}, two},
    PairwiseDistance = {{}, two}, EmbeddingBag = {{10, 4}, function() return flow.tensor {{1, 2}, {3, 9}} end},
    Bilinear = {{6, 6, 3}, two}, Unflatten = {{1, {2, 3}}, row},
    CTCLoss = {{}, function()
        return flow.randn(5, 2, 4):log_softmax(-1), flow.tensor {{1, 2}, {3, 3}}, flow.tensor {5, 4}, flow.tensor {2, 1}
    end},
    QuantizedLinear = {}, -- made of a Linear: tests/module_more_spec.lua
    ModuleDict = {{}}, ParameterDict = {{}}, ParameterList = {{}}, LazyLinear = {{4}}, LazyConv1d = {{4, 3}}, LazyConv2d = {{4, 3}},
    LazyConv3d = {{4, 3}}, LazyConvTranspose1d = {{4, 3}}, LazyConvTranspose2d = {{4, 3}}, LazyConvTranspose3d = {{4, 3}},
    LazyBatchNorm1d = {{}}, LazyBatchNorm2d = {{}}, LazyBatchNorm3d = {{}}, LazyInstanceNorm1d = {{}}, LazyInstanceNorm2d = {{}},
    LazyInstanceNorm3d = {{}}, --[[ they are made by data ]]
    ModuleList = {{}}, Sequential = {{}, row}, Module = {},
}
