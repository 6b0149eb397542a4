// Package kubernetes_test runs the driver of Kubernetes against a whole cluster with
// one real node on this machine: the program of the module in cluster/, and Debian's
// containerd and CNI plugins. It needs root. Its tests have the build tag
// kubernetes.
package kubernetes_test
