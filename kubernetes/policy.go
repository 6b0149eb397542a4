package kubernetes

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// labelNetwork of a Pod is "none" if network policies must isolate it, and networkPolicy if they
// must let it reach the egress proxy alone.
const labelNetwork = domain + "network"

// peer is one side of a connection: a Pod, or another address.
type peer struct {
	namespace string            // empty: not a Pod
	within    map[string]string // labels of the namespace
	labels    map[string]string
	address   netip.Addr // the zero value for a Pod whose address does not matter
}

// admits reports whether the policies of a namespace admit a connection, according to the
// specification of NetworkPolicy. Policies of other namespaces are not considered.
func admits(policies []networkingv1.NetworkPolicy, from, to peer, port int32, protocol corev1.Protocol) bool {
	return oneSide(policies, from, networkingv1.PolicyTypeEgress, to, port, protocol) &&
		oneSide(policies, to, networkingv1.PolicyTypeIngress, from, port, protocol)
}

// oneSide reports whether the policies that select a Pod admit the connections between it and
// other in one direction.
func oneSide(policies []networkingv1.NetworkPolicy, pod peer, way networkingv1.PolicyType, other peer, port int32, protocol corev1.Protocol) bool {
	isolated := false
	for i := range policies {
		p := &policies[i]
		if !selects(p, pod, way) {
			continue
		}
		isolated = true
		if way == networkingv1.PolicyTypeEgress {
			for _, rule := range p.Spec.Egress {
				if anyPeer(p.Namespace, rule.To, other) && anyPort(rule.Ports, port, protocol) {
					return true
				}
			}
			continue
		}
		for _, rule := range p.Spec.Ingress {
			if anyPeer(p.Namespace, rule.From, other) && anyPort(rule.Ports, port, protocol) {
				return true
			}
		}
	}
	return !isolated
}

// leak describes a connection that the policies admit of a Pod that must have no network,
// or returns "" if they isolate it, or let it reach the egress proxy
// alone if it has a policy. The gateway may reach the Pod, also from a single
// address. Policies that admit single Pods by their own labels are not recognised.
func leak(policies []networkingv1.NetworkPolicy, pod peer) string {
	others := []peer{{namespace: pod.namespace, labels: map[string]string{labelManaged: "sandbox"}}, strange(pod.namespace)}
	out, in := false, false // isolated in that direction
	for i := range policies {
		p := &policies[i]
		if selects(p, pod, networkingv1.PolicyTypeEgress) {
			out = true
			if slices.ContainsFunc(p.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
				return pod.labels[labelNetwork] != networkPolicy || !proxyOnly(&rule, pod.namespace+egressSuffix)
			}) {
				return "reach the network (policy " + p.Name + ")"
			}
		}
		if !selects(p, pod, networkingv1.PolicyTypeIngress) {
			continue
		}
		in = true
		for _, rule := range p.Spec.Ingress {
			if slices.ContainsFunc(others, func(other peer) bool { return anyPeer(p.Namespace, rule.From, other) }) {
				return "be reached by other Pods (policy " + p.Name + ")"
			}
			if slices.ContainsFunc(rule.From, isRange) {
				return "be reached from a range of addresses (policy " + p.Name + ")"
			}
		}
	}
	switch {
	case !out:
		return "reach the network"
	case !in:
		return "be reached by other Pods"
	}
	return ""
}

// proxyOnly reports whether a rule admits nothing but the egress proxy in a namespace.
func proxyOnly(rule *networkingv1.NetworkPolicyEgressRule, namespace string) bool {
	return len(rule.To) > 0 && len(rule.Ports) > 0 &&
		!slices.ContainsFunc(rule.To, func(p networkingv1.NetworkPolicyPeer) bool {
			return p.NamespaceSelector == nil || p.PodSelector == nil ||
				p.NamespaceSelector.MatchLabels[corev1.LabelMetadataName] != namespace || p.PodSelector.MatchLabels[labelComponent] != "egress"
		}) &&
		!slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool {
			return p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP || p.Port == nil || p.Port.IntVal != egressPort || p.EndPort != nil
		})
}

// isRange reports whether a rule is about more than one address: a Pod may have one of them.
func isRange(p networkingv1.NetworkPolicyPeer) bool {
	if p.IPBlock == nil {
		return false
	}
	prefix, err := netip.ParsePrefix(p.IPBlock.CIDR)
	return err != nil || !prefix.IsSingleIP()
}

// strange returns a Pod of another namespace.
func strange(namespace string) peer {
	return peer{namespace: namespace + "-other", within: map[string]string{"kubernetes.io/metadata.name": namespace + "-other"}}
}

// selects reports whether a policy applies to a direction of a Pod's connections.
func selects(p *networkingv1.NetworkPolicy, pod peer, way networkingv1.PolicyType) bool {
	return pod.namespace == p.Namespace && matches(&p.Spec.PodSelector, pod.labels) && hasType(&p.Spec, way)
}

// hasType reports whether a policy applies to a direction.
func hasType(spec *networkingv1.NetworkPolicySpec, way networkingv1.PolicyType) bool {
	if len(spec.PolicyTypes) > 0 {
		return slices.Contains(spec.PolicyTypes, way)
	}
	return way == networkingv1.PolicyTypeIngress || len(spec.Egress) > 0
}

// anyPeer reports whether a rule of a policy in a namespace applies to other.
func anyPeer(namespace string, rule []networkingv1.NetworkPolicyPeer, other peer) bool {
	return len(rule) == 0 || slices.ContainsFunc(rule, func(p networkingv1.NetworkPolicyPeer) bool {
		switch {
		case p.IPBlock != nil:
			return inBlock(p.IPBlock, other.address)
		case other.namespace == "":
			return false
		case p.NamespaceSelector == nil && other.namespace != namespace,
			p.NamespaceSelector != nil && !matches(p.NamespaceSelector, other.within):
			return false
		}
		return p.PodSelector == nil || matches(p.PodSelector, other.labels)
	})
}

func inBlock(block *networkingv1.IPBlock, address netip.Addr) bool {
	within := func(cidr string) bool {
		prefix, err := netip.ParsePrefix(cidr)
		return err == nil && prefix.Contains(address)
	}
	return within(block.CIDR) && !slices.ContainsFunc(block.Except, within)
}

// anyPort reports whether a rule applies to a port. A named port may be any.
func anyPort(rule []networkingv1.NetworkPolicyPort, port int32, protocol corev1.Protocol) bool {
	return len(rule) == 0 || slices.ContainsFunc(rule, func(p networkingv1.NetworkPolicyPort) bool {
		own := corev1.ProtocolTCP
		if p.Protocol != nil {
			own = *p.Protocol
		}
		if own != protocol || p.Port == nil || p.Port.StrVal != "" {
			return own == protocol
		}
		last := p.Port.IntVal
		if p.EndPort != nil {
			last = *p.EndPort
		}
		return p.Port.IntVal <= port && port <= last
	})
}

// matches reports whether a selector selects labels. A selector that the API server would
// refuse selects nothing.
func matches(selector *metav1.LabelSelector, of map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(of))
}
