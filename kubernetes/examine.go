package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

// policyAdvice is how to get the network policies.
const policyAdvice = "'runtimectl manifests' prints policies: apply them to the namespace"

// examineAdmission reports whether the API server admits the Pod of a sandbox with the default
// limits. A dry run passes the Pod Security of the namespace, its LimitRange, quota and
// webhooks.
func (d *Driver) examineAdmission(ctx context.Context) sandbox.Finding {
	const about = "admission"
	spec := sandbox.Spec{Image: "doctor.invalid/image"}
	if err := spec.Complete(); err != nil {
		return sandbox.Finding{Status: "note", About: about, Text: err.Error()}
	}
	r := newRecord(sandbox.ID(random.Hex(8)), spec.Hash(), &spec)
	_, err := d.pods().Create(ctx, podFor(&spec, r, &d.config), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		err = d.creationError(ctx, "a trial", err)
		return sandbox.Finding{
			Status: "missing", About: about, Text: "the API server refuses the Pod of a sandbox: " + err.Error(),
			So: "look at the labels pod-security.kubernetes.io/* of namespace " + d.namespace + ", and at its LimitRanges and ResourceQuotas",
		}
	}
	return sandbox.Finding{Status: "ok", About: about, Text: "the API server admits the Pod of a sandbox with the default limits"}
}

// examineNetwork reports the connections that the policies of the namespace should not
// admit, and whether the cluster's network enforces policies.
func (d *Driver) examineNetwork(ctx context.Context) ([]sandbox.Finding, error) {
	list, err := d.api.NetworkingV1().NetworkPolicies(d.namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return []sandbox.Finding{{Status: "note", About: "network", Text: "the cluster does not allow this account to list the network policies of namespace " + d.namespace}}, nil
	}
	if err != nil {
		return nil, apiError(ctx, "listing the network policies", err)
	}
	servers, unknown := d.apiServers(ctx)
	breaches := d.breaches(list.Items, servers)
	var found []sandbox.Finding
	for _, breach := range breaches {
		found = append(found, sandbox.Finding{Status: "weaker", About: "network", Text: "the network policies of namespace " + d.namespace + " let " + breach, So: policyAdvice})
	}
	if len(breaches) == 0 {
		found = append(found, sandbox.Finding{Status: "ok", About: "network", Text: "by the network policies only the gateway reaches sandboxes, and these reach neither each other, nor the API server, nor metadata services"})
	}
	if unknown != nil {
		found = append(found, sandbox.Finding{
			Status: "note", About: "network", Text: "the addresses of the API server behind its service are not known: " + unknown.Error(),
			So: "if they are public, add them to the exceptions of the policy actiond-sandboxes-public",
		})
	}
	return append(found, d.examinePlugin(ctx)), nil
}

// examineEgress reports whether sandboxes can have network policies, and reports the state of the egress proxy.
func (d *Driver) examineEgress(ctx context.Context) ([]sandbox.Finding, error) {
	const about = "network policies"
	if _, err := d.egressAddress(ctx); errors.Is(err, sandbox.ErrInvalid) {
		return []sandbox.Finding{{Status: "note", About: about, Text: strings.TrimPrefix(err.Error(), sandbox.ErrInvalid.Error()+": ")}}, nil
	} else if err != nil {
		return nil, err
	}
	missing, err := d.checkRightsIn(ctx, d.egressSpace(), egressRights)
	if err != nil {
		return nil, err
	}
	for i := range missing {
		missing[i].Status, missing[i].So = "note", "sandboxes cannot have network policies without the Role actiond-egress-writer there"
	}
	pod, err := d.egressPod(ctx)
	var metrics []byte
	if err == nil {
		err = d.askEgress(ctx, policyTime, metricsPort, "/metrics", "", &metrics)
	}
	if err != nil {
		return append(missing, sandbox.Finding{
			Status: "weaker", About: about, Text: "the egress proxy does not answer: sandboxes with network policies reach nothing, and no others can be created",
			So: fmt.Sprintf("%v; look at 'kubectl --namespace %s get pods'", err, d.egressSpace()),
		}), nil
	}
	version, open, memory := egress.ReadMetrics(metrics)
	found := append(missing, sandbox.Finding{Status: "ok", About: about, Text: fmt.Sprintf("the egress proxy %s runs in namespace %s, with %d open connections and %d MiB of memory",
		version, d.egressSpace(), open, int(memory)>>20)})
	if image := pod.Spec.Containers[0].Image; d.config.ServerImage != "" && image != d.config.ServerImage {
		found = append(found, sandbox.Finding{
			Status: "note", About: about, Text: "the egress proxy runs the image " + image + ", and new sandboxes get the server of " + d.config.ServerImage,
			So: "apply what 'runtimectl manifests' prints for the image, which ends the connections of sandboxes with network policies",
		})
	}
	list, err := d.api.NetworkingV1().NetworkPolicies(d.namespace).List(ctx, metav1.ListOptions{})
	if err == nil {
		if leaked := leak(list.Items, d.policyPod()); leaked != "" {
			found = append(found, sandbox.Finding{
				Status: "weaker", About: about, Text: "the network policies of namespace " + d.namespace + " let sandboxes with a network policy " + leaked + ": their creation is refused", So: policyAdvice,
			})
		}
	}
	return found, nil
}

// policyPod is the Pod of a sandbox with a network policy.
func (d *Driver) policyPod() peer {
	return peer{namespace: d.namespace, labels: podLabels(&sandbox.Spec{Policy: &egress.Policy{}}, "")}
}

// checkIsolation refuses a sandbox with --network none or a network policy if the policies of the
// namespace leave it another way.
func (d *Driver) checkIsolation(ctx context.Context, spec *sandbox.Spec) error {
	what := "network none"
	if spec.Policy != nil {
		what = "network policy"
	}
	list, err := d.api.NetworkingV1().NetworkPolicies(d.namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return sandbox.Invalid("%s: the cluster does not allow this account to list the network policies of namespace %s, which must isolate the sandbox; ask for that right", what, d.namespace)
	}
	if err != nil {
		return apiError(ctx, "listing the network policies", err)
	}
	if leaked := leak(list.Items, peer{namespace: d.namespace, labels: podLabels(spec, "")}); leaked != "" {
		return sandbox.Invalid("%s: the network policies of namespace %s let the sandbox %s; %s", what, d.namespace, leaked,
			policyAdvice)
	}
	return nil
}

// metadata has the addresses of the metadata services of clouds.
var metadata = []string{"169.254.169.254", "169.254.170.2", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"}

// breaches describes the connections that the policies admit and should not.
func (d *Driver) breaches(policies []networkingv1.NetworkPolicy, servers []netip.AddrPort) []string {
	pod := peer{namespace: d.namespace, labels: map[string]string{labelManaged: "sandbox"}}
	var found []string
	try := func(from, to peer, port int32, text string) {
		if admits(policies, from, to, port, corev1.ProtocolTCP) && !slices.Contains(found, text) {
			found = append(found, text)
		}
	}
	try(pod, pod, port, "sandboxes reach each other")
	try(strange(d.namespace), pod, port, "Pods of other namespaces reach sandboxes")
	for _, at := range servers {
		try(pod, peer{address: at.Addr()}, int32(at.Port()), "sandboxes reach the API server at "+at.String())
	}
	var reached []string
	for _, at := range metadata {
		if admits(policies, pod, peer{address: netip.MustParseAddr(at)}, 80, corev1.ProtocolTCP) {
			reached = append(reached, at)
		}
	}
	if len(reached) > 0 {
		found = append(found, "sandboxes reach the metadata service of a cloud (one of "+strings.Join(reached, ", ")+")")
	}
	if leaked := leak(policies, peer{namespace: d.namespace, labels: podLabels(&sandbox.Spec{Network: "none"}, "")}); leaked != "" {
		found = append(found, "sandboxes with --network none "+leaked)
	}
	return found
}

// apiServers returns the known addresses of the API server. unknown is the error of a request
// for those behind its service.
func (d *Driver) apiServers(ctx context.Context) (all []netip.AddrPort, unknown error) {
	add := func(address string, port int32) {
		if ip, err := netip.ParseAddr(address); err == nil && !ip.IsLoopback() && port > 0 && port <= 65535 {
			all = append(all, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
		}
	}
	if service, err := d.api.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{}); err == nil {
		for _, p := range service.Spec.Ports {
			for _, ip := range service.Spec.ClusterIPs {
				add(ip, p.Port)
			}
		}
	}
	slices, unknown := d.api.DiscoveryV1().EndpointSlices("default").List(ctx,
		metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
	if unknown == nil {
		for _, slice := range slices.Items {
			for _, e := range slice.Endpoints {
				for _, p := range slice.Ports {
					for _, ip := range e.Addresses {
						if p.Port != nil {
							add(ip, *p.Port)
						}
					}
				}
			}
		}
	}
	if at, err := url.Parse(d.host); err == nil && at.Host != "" {
		number, err := strconv.ParseInt(at.Port(), 10, 32)
		if err != nil {
			number = 443
		}
		lookup, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		addresses, _ := net.DefaultResolver.LookupHost(lookup, at.Hostname()) // without them, those of the cluster are used
		for _, ip := range addresses {
			add(ip, int32(number))
		}
	}
	return all, unknown
}

// enforcers are the network plugins that enforce policies, each by a part of the name of its
// DaemonSet.
var enforcers = []string{
	"anetd", "antrea", "azure-npm", "calico", "canal", "cilium", "kindnet", "kube-network-policies", "kube-ovn",
	"kube-router", "ovnkube", "weave-net",
}

// examinePlugin reports whether the cluster's network enforces policies, as far as the
// cluster's DaemonSets show it.
func (d *Driver) examinePlugin(ctx context.Context) sandbox.Finding {
	const about, so = "network plugin", "try it: in one sandbox, connect to port 1000 of the address that 'runtimectl inspect' shows for another"
	list, err := d.api.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return sandbox.Finding{Status: "note", About: about, Text: "whether the cluster's network enforces policies is not known: " + err.Error(), So: so}
	}
	for i := range list.Items {
		if name := enforcer(&list.Items[i]); name != "" {
			return sandbox.Finding{Status: "ok", About: about, Text: "the DaemonSet " + name + " enforces network policies; a Pod's own node they never cover"}
		}
	}
	if nodes, err := d.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1}); err == nil && len(nodes.Items) > 0 && strings.Contains(nodes.Items[0].Status.NodeInfo.KubeletVersion, "+k3s") {
		return sandbox.Finding{Status: "ok", About: about, Text: "k3s enforces network policies, unless it was started with --disable-network-policy; a Pod's own node, where the API server may be, they never cover"}
	}
	return sandbox.Finding{
		Status: "weaker", About: about, So: "use a network plugin that enforces policies, such as Calico or Cilium; to be sure, " + so,
		Text: "no network plugin that enforces policies was found: sandboxes reach each other, the API server and metadata services, those with --network none or a network policy too",
	}
}

// enforcer returns the name of a DaemonSet that runs and enforces network policies, or "".
func enforcer(set *appsv1.DaemonSet) string {
	if set.Status.NumberReady == 0 {
		return ""
	}
	enforces := slices.ContainsFunc(enforcers, func(word string) bool { return strings.Contains(set.Name, word) })
	for _, c := range set.Spec.Template.Spec.Containers { // Amazon's plugin enforces them only with this flag
		enforces = enforces || c.Name == "aws-eks-nodeagent" && slices.Contains(c.Args, "--enable-network-policy=true")
	}
	if !enforces {
		return ""
	}
	return set.Namespace + "/" + set.Name
}

// maxNodes limits the number of kubelets that are asked for their configuration.
const maxNodes = 5

// examineNodes reports the protections of a Docker host that the nodes lack.
func (d *Driver) examineNodes(ctx context.Context) []sandbox.Finding {
	nodes, err := d.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 500})
	if err != nil {
		return []sandbox.Finding{{Status: "note", About: "nodes", Text: "their protections are not known: " + err.Error()}}
	}
	var found []sandbox.Finding
	var without []string
	for _, n := range nodes.Items {
		if !hasUserNamespaces(&n) {
			without = append(without, n.Name)
		}
	}
	if len(without) > 0 {
		found = append(found, sandbox.Finding{
			Status: "weaker", About: "user namespaces", Text: "Pods share the user ids of these nodes: " + some(without),
			So: "user namespaces need Kubernetes 1.33 and a container runtime such as containerd 2; --userns private uses them",
		})
	} else if len(nodes.Items) > 0 {
		found = append(found, sandbox.Finding{Status: "ok", About: "user namespaces", Text: "all nodes support them: --userns private gives each sandbox its own"})
	}
	if len(nodes.Items) > 0 && !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return !mountsImages(&n) }) && !d.config.ServerVolume {
		found = append(found, sandbox.Finding{
			Status: "note", About: "server", Text: "all nodes can mount the server's image, which makes a creation a fifth faster than a copy",
			So: "use --server-volume",
		})
	}
	var unlimited, unknown []string
	for _, n := range nodes.Items[:min(len(nodes.Items), maxNodes)] {
		switch limit, err := d.processLimit(ctx, n.Name); {
		case err != nil:
			unknown = append(unknown, n.Name)
		case limit <= 0:
			unlimited = append(unlimited, n.Name)
		}
	}
	const so = "set podPidsLimit in the kubelets' configuration"
	if len(unlimited) > 0 {
		found = append(found, sandbox.Finding{Status: "weaker", About: "processes", Text: "these nodes do not limit the processes of a Pod: " + some(unlimited), So: so})
	}
	if len(unknown) > 0 {
		found = append(found, sandbox.Finding{Status: "note", About: "processes", Text: "Pods have no process limit of their own, and the kubelet's limit is not known for these nodes: " + some(unknown), So: so})
	}
	return found
}

// imageVolumes are the first versions with image volumes, of the kubelet and of runtimes.
var imageVolumes = map[string]*utilversion.Version{
	"kubelet": utilversion.MajorMinor(1, 35), "containerd": utilversion.MajorMinor(2, 1),
	"cri-o": utilversion.MajorMinor(1, 33),
}

// mountsImages reports whether a node is known to support image volumes.
func mountsImages(n *corev1.Node) bool {
	name, version, _ := strings.Cut(n.Status.NodeInfo.ContainerRuntimeVersion, "://")
	for name, version := range map[string]string{name: version, "kubelet": n.Status.NodeInfo.KubeletVersion} {
		has, err := utilversion.ParseGeneric(version)
		if least := imageVolumes[name]; err != nil || least == nil || has.LessThan(least) {
			return false
		}
	}
	return true
}

// hasUserNamespaces reports whether every runtime of a node supports user namespaces.
func hasUserNamespaces(n *corev1.Node) bool {
	return len(n.Status.RuntimeHandlers) > 0 && !slices.ContainsFunc(n.Status.RuntimeHandlers, func(h corev1.NodeRuntimeHandler) bool {
		return h.Features == nil || h.Features.UserNamespaces == nil || !*h.Features.UserNamespaces
	})
}

// processLimit asks a kubelet for its podPidsLimit.
func (d *Driver) processLimit(ctx context.Context, node string) (int64, error) {
	data, err := d.configz(ctx, node)
	if err != nil {
		return 0, apiError(ctx, "asking the kubelet of "+node, err)
	}
	var config struct {
		Kubelet struct {
			PodPidsLimit *int64 `json:"podPidsLimit"`
		} `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(data, &config); err != nil || config.Kubelet.PodPidsLimit == nil {
		return 0, fmt.Errorf("asking the kubelet of %s: its answer has no podPidsLimit", node)
	}
	return *config.Kubelet.PodPidsLimit, nil
}

// some joins the first names of a list.
func some(names []string) string {
	if len(names) > 3 {
		return strings.Join(names[:3], ", ") + " and " + strconv.Itoa(len(names)-3) + " more"
	}
	return strings.Join(names, ", ")
}
