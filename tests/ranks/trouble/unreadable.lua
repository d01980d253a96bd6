-- Read by run_ranks_spec.lua: a file that ends while it is read.
error "this file cannot be read"
