package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

// keyField is the field of the Secret with the gateway's key.
const keyField = "key"

// GatewayKey is [sandbox.KeyKeeper]'s. If several gateways create the Secret at once, the
// API server decides which is first.
func (d *Driver) GatewayKey(ctx context.Context, name string) (string, error) {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", sandbox.Invalid("Secret %q: %s", name, problems[0])
	}
	for {
		secret, err := d.secrets().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			secret, err = d.secrets().Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{keyField: []byte(random.Hex(32))},
			}, metav1.CreateOptions{})
		}
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return "", apiError(ctx, "reading the key of the gateway from the Secret "+name, err)
		}
		if len(secret.Data[keyField]) == 0 || secret.Labels[labelManaged] != "" {
			return "", sandbox.Invalid("the Secret %s in namespace %s is not the key of a gateway, which has one field, %s; use another name", name, d.namespace, keyField)
		}
		return string(secret.Data[keyField]), nil
	}
}
