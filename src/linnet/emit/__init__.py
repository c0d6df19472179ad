"""Emitters: Core IR to the source or graph of a target.

torch    readable PyTorch source; `torch_kernels` is its table of kernels, `torch_ops` of core ops

Shared by targets that are Python: `bodies` (functions with their regions in place), `liveness` and
`memory` (what may be written in place), `code` and `lines` (expressions and statements as text).
"""
