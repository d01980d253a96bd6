-- data.lua -- flow.data: readers, datasets and the loader, each from a module of its own.

local check = require "flow.check"
local lazy_names = require "flow.lazy_names"

-- Types of arguments that several functions share.
check.define_type("positions", "a 1-D local tensor of whole numbers", function(value)
    return check.is_tensor(value) and value.ndim == 1 and not value.is_global and value.dtype:find("int") ~= nil
end)

return check.strict("data", lazy_names.add({}, {
    data_files = "files hash idx mnist read",
    data_readers = "csv jsonl matrix npy npz save_npy save_npz",
    data_images = "images jpeg png save_jpeg save_png",
    data_augment = "adjust_brightness adjust_contrast adjust_hue adjust_saturation augment center_crop color_jitter " ..
        "crop grayscale horizontal_flip imagenet mixup normalize pad random_crop random_erasing random_grayscale " ..
        "random_horizontal_flip random_resized_crop random_rotation random_vertical_flip resize rotate vertical_flip",
    data_text = "text", data_tokens = "tokenizer", data_pack = "pack", data_records = "records",
    data_sets = "generate random tensors windows", data_parts = "concat random_split subset weighted",
    data_loader = "default_collate loader",
}))
