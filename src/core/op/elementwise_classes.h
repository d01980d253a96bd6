/*
** elementwise_classes.h -- which rows of elementwise.def a class of types has: ROW_<types>_<class>(shape, id, e) is
** DEFINE_<shape>(id, e) where the types of the row include the class, else nothing.
*/
#ifndef FL_ELEMENTWISE_CLASSES_H
#define FL_ELEMENTWISE_CLASSES_H

#define ROW_F_F(shape, id, e) DEFINE_##shape(id, e)
#define ROW_F_I(shape, id, e)
#define ROW_F_B(shape, id, e)
#define ROW_FI_F(shape, id, e) DEFINE_##shape(id, e)
#define ROW_FI_I(shape, id, e) DEFINE_##shape(id, e)
#define ROW_FI_B(shape, id, e)
#define ROW_FIB_F(shape, id, e) DEFINE_##shape(id, e)
#define ROW_FIB_I(shape, id, e) DEFINE_##shape(id, e)
#define ROW_FIB_B(shape, id, e) DEFINE_##shape(id, e)
#define ROW_I_F(shape, id, e)
#define ROW_I_I(shape, id, e) DEFINE_##shape(id, e)
#define ROW_I_B(shape, id, e)
#define ROW_IB_F(shape, id, e)
#define ROW_IB_I(shape, id, e) DEFINE_##shape(id, e)
#define ROW_IB_B(shape, id, e) DEFINE_##shape(id, e)
#define ROW_B_F(shape, id, e)
#define ROW_B_I(shape, id, e)
#define ROW_B_B(shape, id, e) DEFINE_##shape(id, e)

#endif
