/*
** version.h -- the version, also of flow.pc and of libflow.so's file (the Makefile reads this line).
*/
#ifndef FL_VERSION_H
#define FL_VERSION_H

#define FL_VERSION "0.1.0"

#endif
