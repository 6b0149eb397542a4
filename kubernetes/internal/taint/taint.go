// Package taint reads tolerations. It imports no client of Kubernetes, which its fuzzer
// would compile again with instrumentation.
package taint

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/actiond/actiond/sandbox"
)

// Toleration is a toleration of a Pod: without a value every value of the key, without
// an effect every effect.
type Toleration struct {
	Key, Value, Effect string
	HasValue           bool
}

// effects are those of Kubernetes.
var effects = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}

// Parse reads KEY[=VALUE][:EFFECT], as 'kubectl taint' writes a taint.
func Parse(word string) (Toleration, error) {
	taint, effect, hasEffect := strings.Cut(word, ":")
	t := Toleration{Effect: effect}
	t.Key, t.Value, t.HasValue = strings.Cut(taint, "=")
	problems := slices.Concat(validation.IsQualifiedName(t.Key), validation.IsValidLabelValue(t.Value))
	if hasEffect && !slices.Contains(effects, effect) {
		problems = append(problems, "the effect must be one of "+strings.Join(effects, ", "))
	}
	if len(problems) > 0 {
		return Toleration{}, sandbox.Invalid("toleration %q: must be KEY[=VALUE][:EFFECT]: %s", word, problems[0])
	}
	return t, nil
}
