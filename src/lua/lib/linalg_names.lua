-- linalg_names.lua -- names of PyTorch for factors of matrices beside linalg: lu, lu_solve, lu_unpack, geqrf, orgqr,
-- ormqr, svd_lowrank, pca_lowrank.

return require("flow.linalg_factors").flow
