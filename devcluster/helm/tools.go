//go:build tools

// Package tools pins the Helm release that the local cluster builds.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
