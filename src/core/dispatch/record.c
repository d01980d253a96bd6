/*
** record.c -- who records ops: see record.h.
*/
#include "record.h"

const fl_recorder *fl_recorder_now;
bool fl_grad_enabled;
uint8_t fl_dispatch_watched;

void fl_recorder_set(const fl_recorder *recorder)
{
    fl_recorder_now = recorder;
    fl_grad_enabled = true;
    fl_tensor_release_record = recorder->release;
}
