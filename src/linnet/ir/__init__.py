"""Core IR: what a program is once its generics are bound, and all that is done to it.

core         the IR itself: modules, functions, operations
verify       its rules
printer      to text; `parse` reads it back
instantiate  binds generics (`generics`): the block tree, the manifest, an entry's generics
lower        typed program to Core IR: functions and statements, each in a `frame`, written by
             `build`; `expressions`; `control` for branches and loops; `index` for index notation,
             with `access`, `contraction` and `labels`; `statics` for what leaves no trace
passes       `inline`, `simplify` (common subexpressions, constants by `fold`), `dce`, `join`ed
             projections, weight-only work `hoist`ed to `prepare`; what they share is in `rewrite`
interpreter  what every operation means, in NumPy
"""
