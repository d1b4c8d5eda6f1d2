"""Which of the kernels that Inductor generated writes the first wrong buffer, and who is to blame for it.

`recorder` cuts the kernel out with its inputs, `cpp` and `triton_kernel` run it alone, otherwise than Inductor does, in a process of
its own; `verdict` reads who is to blame off the answers. Everything that is handed on is `record`'s plain data.
"""
