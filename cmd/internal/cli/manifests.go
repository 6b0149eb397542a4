package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/kubernetes/manifests"
)

func (p *program) manifests() *cobra.Command {
	var o manifests.Options
	replicas := 0
	c := &cobra.Command{
		Use:   "manifests [flags]",
		Short: "Print what installs a gateway on Kubernetes",
		Long: `Manifests prints YAML documents that install a gateway and the namespace of its
sandboxes on a cluster: the account of the gateway and its rights, the network
policies of sandboxes, and a Deployment of 'runtimectl serve'; and in a namespace of
its own, NAMESPACE-egress, the egress proxy. It needs no cluster.

The gateway makes its key and keeps it in the Secret actiond-gateway-key of the
namespace, unless you make that Secret before, with a field 'key'.`,
		Example: `  runtimectl manifests --image registry.example/actiond-server:1 |
    kubectl apply -f -
  kubectl --namespace actiond get secret actiond-gateway-key \
    --output jsonpath='{.data.key}' | base64 --decode`,
		Args:        command.NoArgs,
		Annotations: map[string]string{command.NoSandboxes: "yes"},
	}
	c.Flags().StringVar(&o.Namespace, "namespace", "actiond", "put all into the `NAMESPACE`, which is made")
	c.Flags().StringVar(&o.Image, "image", "actiond-server:dev", "run the gateway from this `IMAGE`, which 'make image-server' builds and which\nalso brings the server into sandboxes")
	c.Flags().IntVar(&replicas, "replicas", 2, "run `N` gateways")
	c.Flags().BoolVar(&o.NoEgress, "no-egress", false,
		"leave out the egress proxy and its namespace: sandboxes can have no network policies")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Namespace == "" || o.Image == "" {
			return command.Usage(cmd, errors.New("--namespace and --image must not be empty"))
		}
		o.Replicas = &replicas
		text, err := manifests.Gateway(o)
		if err != nil {
			return command.Usage(cmd, err)
		}
		_, err = p.Stdout.Write(text)
		return err
	}
	return c
}
