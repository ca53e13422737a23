"""The operator: turns a DistServeDeployment into running pods and keeps it so."""
