/*
** process.h -- the door of the core, second part: the process that computes, its engine, devices and ranks.
**
** For what starts, ends and watches a process: the shell, and flow.sync, flow.memory_stats and the like. script.h
** is the first part, tasks.h the third; few bindings need more than one.
*/
#ifndef FL_PROCESS_H
#define FL_PROCESS_H

/* Execution: waiting, the mode of the engine, profiles; threads; the precision of products. */
#include "engine/control.h"
#include "engine/precision.h"
#include "engine/team.h"
/* Threads that share the items of a batch, and the lane of batches. */
#include "data/pool.h"
/* Results that are computed later: which of them garbage holds, what was computed in one pass. */
#include "dispatch/chain.h"
#include "dispatch/chain_report.h"
/* The level of the CPU kernels that runs here. */
#include "cpu/cpu.h"
/* Devices and memory, also the memory that the ranks of a host share. */
#include "memory/arena.h"
#include "memory/device.h"
/* The clock; numbers with a point; the thread that may call; files of the program that are opened only when needed:
** transport and devices. */
#include "base/clock.h"
#include "base/locale.h"
#include "base/owner.h"
#include "base/plugin.h"
#include "base/version.h"

/* Ranks: joining and leaving a job, its end when one of them fails, control messages, memory of a host. */
#include "ranks/agree.h"
#include "ranks/comm.h"
#include "ranks/device_comm.h"
#include "ranks/failure.h"
#include "ranks/journal.h"
#include "ranks/launch.h"
#include "ranks/message.h"
#include "ranks/shared.h"
/* Work of one rank alone. */
#include "dispatch/alone.h"
/* Bytes moved between ranks so far. */
#include "boxing/move.h"

/* For tests: one process as a rank of many, and a rank that fails on purpose. */
#include "dispatch/dry_world.h"
#include "dispatch/fault.h"

#endif
