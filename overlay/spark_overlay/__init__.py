"""What sparktui puts into the image: the entry point, the launch arguments, the Engram packer, the NFS exporter.

Python 3.11 and 3.12, standard library only (the packer also uses numpy, which the engine brings). This package
and `sparktui` never import each other: they meet at image labels, container environment and files.
"""

__version__ = "0.1.0"
ENGINE_VERSION = "0.5.23"
