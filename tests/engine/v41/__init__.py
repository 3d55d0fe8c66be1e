"""The proof bench: SGLang's own DeepSeek-V4.1 model, loader and draft on the CPU, in as many ranks as a cluster has.

- `layout`: what a checkpoint of this model holds, at real and tiny sizes (standard library only);
- `checkpoint`: writes the tiny one;
- `cpu_ops`, `attention`: what the engine has no CPU form for;
- `ranks`, `forward`: N forked ranks that build, load and run the model;
- `faults`: what a bad padding would look like;
- `__main__`: runs it all and prints the table of docs/padding.md.
"""
