/*
** script.h -- the door of the core, first part: the headers for computations of scripts.
**
** The Lua layer includes this header, process.h and tasks.h and nothing else of the core (`make layers` checks it),
** so these lists are all that a language on top of the core depends on.
*/
#ifndef FL_SCRIPT_H
#define FL_SCRIPT_H

/* Tensors, ops and calls of them; the headers it includes: status, dtypes, shapes, placements, SBP, metas. */
#include "dispatch/autocast.h"
#include "dispatch/dispatch.h"
/* Gradients: the tape, backward, hooks; functions with a backward of their own; where the first NaN comes from. */
#include "autograd/anomaly.h"
#include "autograd/autograd.h"
#include "autograd/function.h"
/* Functions that run again for the values of their gradients. */
#include "autograd/recompute.h"
/* Programs: the kernels of a function, recorded and run again. */
#include "program/program.h"
/* The same in pieces, of functions that read values. */
#include "program/pieces.h"
/* Cost of an op; planned scripts: the results that are computed, and the cost of all. */
#include "dispatch/cost.h"
#include "dispatch/planned.h"
#include "program/tally.h"
/* Casts between local and global, devices and SBPs. */
#include "dispatch/to_global.h"
/* Programs of ops: the tracer of what a script calls, and the answerer that defers it. */
#include "dispatch/answer.h"
#include "dispatch/tracer.h"
/* The SBP that an op's result has, and why (explain, the signatures of the registry). */
#include "infer/infer.h"
/* The plan that moves a tensor from one SBP to another, and what it costs. */
#include "boxing/boxing.h"

/* The attributes of the ops behind x[key], x[key] = value and x:to(). */
#include "op/create.h"
#include "op/formula.h"
#include "op/indexing.h"
#include "op/registry.h"
#include "op/slicing.h"
#include "op/views.h"

/* Inference of ops that a script defines: the promoted dtype. */
#include "op/operand.h"
#include "op/outside.h"

/* Copies of plain memory, which arrays of functions beside the script are made of. */
#include "cpu/cpu.h"

/* Memory shared with other libraries. */
#include "memory/dlpack.h"

/* Ops in shared objects. */
#include "ops/library.h"

/* Random numbers: generators, and the order of a shuffled data set. */
#include "base/item_random.h"
#include "base/priority.h"
#include "base/shuffle.h"
#include "value/random.h"

/* Hashes of bytes; characters; names that are alike. */
#include "base/hash.h"
#include "base/suggest.h"
#include "base/utf8.h"

/* Files: safetensors, IDX, JSON, NumPy's, tables of text; paths that may be opened, files that are replaced. */
#include "file/csv.h"
#include "file/idx.h"
#include "file/json.h"
#include "file/lines.h"
#include "file/npy.h"
#include "file/npy_write.h"
#include "file/open.h"
#include "file/replace.h"
#include "file/safetensors.h"
#include "file/zip.h"
#include "dispatch/stored.h"
/* Record files, and batches of them. */
#include "data/record_batch.h"
#include "data/record_pack.h"

/* Text as tokens. */
#include "tokens/tokenizer.h"

/* Data: sources of items, batches of images. */
#include "data/images.h"
#include "data/source.h"
#include "file/jpeg_write.h"
#include "file/png_write.h"

#endif
