"""The proof bench: SGLang's own DeepSeek-V4.1 model, loader and draft on the CPU, in as many ranks as a cluster has.

- `layout`, `config`: what a checkpoint of this model holds, at real and tiny sizes (standard library only);
- `checkpoint`: writes the tiny one;
- `cpu_ops`, `attention`: what the engine has no CPU form for;
- `ranks`, `forward`: N forked ranks that build, load and run the model;
- `padding_checks`, `faults`: what the padding has to be, and what a bad one would look like;
- `router`: the router's kernel, interpreted;
- `__main__`: runs it all; `bench` starts it from the project's Python, `page` writes docs/padding.md from it.
"""
