/*
** output.h -- what the ranks of a job print, whole line by whole line.
*/
#ifndef FL_OUTPUT_H
#define FL_OUTPUT_H

/* Longest line that reaches mpirun in one piece. */
enum { FL_OUTPUT_LINE = 1 << 20 };

/* All ranks of the job run on this host: this one writes from now on to the standard output and errors of the process
** `first`, rank 0. Nothing changes where mpirun does not run here, has an option that marks the ranks' output, or does
** not pass on what this rank writes (a shell or another program reads it). Called once by every rank, rank 0 too,
** before it prints and before any rank changes its descriptors. */
void fl_output_join(int first);

#endif
