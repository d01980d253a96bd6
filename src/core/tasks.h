/*
** tasks.h -- the door of the core, third part: functions that run when the variables they name allow it.
**
** For the few bindings that give the engine functions of their own.
*/
#ifndef FL_TASKS_H
#define FL_TASKS_H

#include "engine/engine.h"

#endif
