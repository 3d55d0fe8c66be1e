"""What is watched: one stream a node, merged into one frozen picture of the cluster."""
