/*
** dry_world.c -- forgets what was planned for another rank.
*/
#include "dry_world.h"
#include "boxing/boxing.h"
#include "infer/infer.h"
#include "value/meta.h"

void fl_world_changed(void)
{
    fl_meta_refresh_all();
    fl_infer_clear();
    fl_boxing_forget();
}

fl_status fl_world_set_dry(int size, int rank)
{
    FL_TRY(fl_world_pretend(size, rank));
    fl_world_changed();
    return FL_OK;
}
