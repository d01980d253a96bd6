/*
** listener.c -- setting the listener: see listener.h; and the variables of answer.h.
*/
#include "listener.h"
#include "answer.h"
#include "boxing/boxing.h"
#include "engine/engine.h"

const fl_listener *fl_listener_now;
const fl_answerer *fl_answerer_now;
bool fl_answer_hooked;

void fl_listen(const fl_listener *listener)
{
    fl_listener_now = listener;
    fl_boxing_listener = listener ? listener->boxed : NULL;
    fl_tensor_made = listener ? listener->made : NULL;
    fl_storage_watchers = listener != NULL;
    fl_engine_watch(listener != NULL);
}
