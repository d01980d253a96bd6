/*
** arrays.cu -- operands as row-major arrays: see arrays.h.
*/
#include "arrays.h"
#include "cuda/parts/convert.h"
#include "copies.h"

void fl_cuda_strides(int64_t *strides, const int64_t *size, int ndim)
{
    int64_t stride = 1;
    for (int a = ndim - 1; a >= 0; a--) {
        strides[a] = stride;
        stride *= size[a] ? size[a] : 1;
    }
}

void fl_cuda_number_bytes(int64_t bytes[1], fl_dtype dtype, const fl_view *number)
{
    fl_cuda_by_storage(number->dtype, [&](auto from) {
        memcpy(&from, number->scalar, sizeof from);
        return fl_cuda_by_storage(dtype, [&](auto to) {
            to = fl_convert<decltype(to)>(from);
            memcpy(bytes, &to, sizeof to);
            return FL_OK;
        });
    });
}

fl_status fl_cuda_array_room(fl_cuda_array *array, const fl_view *view, fl_dtype dtype)
{
    array->view = *view;
    array->memory = NULL;
    if (view->numel == 0 || (view->contiguous && view->dtype == dtype)) return FL_OK;
    FL_TRY(fl_cuda_malloc(&array->memory, (size_t)view->numel * fl_dtype_size(dtype)));
    fl_cuda_strides(array->stride, view->size, view->ndim);
    array->view.data = array->memory;
    array->view.dtype = dtype;
    array->view.stride = array->stride;
    array->view.contiguous = true;
    return FL_OK;
}

fl_status fl_cuda_array_open(fl_cuda_array *array, const fl_view *view, fl_dtype dtype)
{
    FL_TRY(fl_cuda_array_room(array, view, dtype));
    fl_status status = array->memory ? fl_cuda_copy_view(&array->view, view) : FL_OK;
    if (status != FL_OK) fl_cuda_array_close(array);
    return status;
}

fl_status fl_cuda_array_store(const fl_view *view, const fl_cuda_array *array)
{
    return array->memory ? fl_cuda_copy_view(view, &array->view) : FL_OK;
}

void fl_cuda_array_close(fl_cuda_array *array)
{
    if (array->memory) fl_cuda_free(array->memory);
}
