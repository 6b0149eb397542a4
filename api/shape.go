package api

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// shape is the form of an object on the wire: a struct with json tags.
type shape struct {
	absent   reflect.Value  // the struct with the values of absent members
	fields   func() []field // found out when first used, to start fast
	required []string       // members that must come and must not be null
	ignored  []string       // members that may come and mean nothing here
	open     bool           // unknown members are ignored too
}

type field struct {
	name  string
	index []int
}

func shapeOf(absent any, required ...string) *shape {
	s := &shape{absent: reflect.ValueOf(absent), required: required}
	s.fields = sync.OnceValue(func() (fields []field) {
		for _, f := range reflect.VisibleFields(s.absent.Type()) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
				fields = append(fields, field{name: name, index: f.Index})
			}
		}
		return fields
	})
	return s
}

// ignoring adds members that may come and mean nothing here.
func (s *shape) ignoring(names ...string) *shape {
	s.ignored = names
	return s
}

// openShapeOf is shapeOf for an object that may have unknown members.
func openShapeOf(absent any, required ...string) *shape {
	s := shapeOf(absent, required...)
	s.open = true
	return s
}

// names returns the names of the members.
func (s *shape) names() []string {
	var names []string
	for _, f := range s.fields() {
		names = append(names, f.name)
	}
	return append(names, s.ignored...)
}

// allowed lists the names of the members for messages.
func (s *shape) allowed() string {
	names := s.names()
	for i, name := range names {
		if slices.Contains(s.required, name) {
			names[i] += " (required)"
		}
	}
	return strings.Join(names, ", ")
}

// missing is the error for a member that did not come.
func (s *shape) missing(label, name string) error {
	return fmt.Errorf("%s %q is missing; allowed are %s", label, name, s.allowed())
}

// decoding is one object on its way into a struct.
type decoding struct {
	label  string // how messages call a member: `action "run": argument`
	shape  *shape
	sent   members
	strict bool          // about halves of surrogate pairs
	wrong  []wrongMember // in the order of the struct's fields
}

// wrongMember is a member whose value was not understood.
type wrongMember struct {
	name string
	text string // what is wrong, for messages
	own  string // the same in the words of the value's own type, "" for none
}

// decode returns a struct of the given shape. Each member is decoded on its own,
// so that a wrong one hides no other. Null counts as absent, unless the member
// is required. Absent free-form objects are empty.
func decode(s *shape, label string, sent members, strict bool) (any, *decoding) {
	d := &decoding{label: label, shape: s, sent: sent, strict: strict}
	v := reflect.New(s.absent.Type()).Elem()
	v.Set(s.absent)
	for _, f := range s.fields() {
		target := v.FieldByIndex(f.index)
		raw, ok := sent[f.name]
		if !ok || raw.Kind() == 'n' && !slices.Contains(s.required, f.name) {
			if object, ok := reflect.TypeAssert[*map[string]any](target.Addr()); ok {
				*object = map[string]any{}
			}
			continue
		}
		if err := d.assign(target.Addr().Interface(), raw); err != nil {
			target.Set(s.absent.FieldByIndex(f.index))
			d.complain(f.name, target.Type(), raw, err)
		}
	}
	return v.Interface(), d
}

// decodeInner decodes an object inside of a member.
func decodeInner[T any](s *shape, want string, data []byte, strict bool) (none T, err error) {
	if jsontext.Value(data).Kind() != '{' {
		return none, &wantError{want, data}
	}
	sent, err := readMembers(data, unlimited, want)
	if err != nil {
		return none, err
	}
	v, d := decode(s, "member", sent, strict)
	if err := d.check(); err != nil {
		return none, &ownError{err.Error()}
	}
	return v.(T), nil
}

// assign decodes one value. Texts, which may be large, take a short cut: the
// scanner has found that they are valid.
func (d *decoding) assign(target any, raw jsontext.Value) (err error) {
	switch target := target.(type) {
	case *string:
		*target, err = text(raw, d.strict)
		return err
	case **string:
		var s string
		if s, err = text(raw, d.strict); err == nil {
			*target = &s
		}
		return err
	}
	if d.strict {
		return json.Unmarshal(raw, target, strict)
	}
	return json.Unmarshal(raw, target, lax)
}

// complain notes what is wrong with a member.
func (d *decoding) complain(name string, t reflect.Type, raw jsontext.Value, err error) {
	wrong := wrongMember{name: name, text: fmt.Sprintf("%s %q", d.label, name)}
	want, isWant := errors.AsType[*wantError](err)
	own, isOwn := errors.AsType[*ownError](err)
	switch {
	case isOwn:
		if at, ok := errors.AsType[*json.SemanticError](err); ok && at.JSONPointer != "" {
			wrong.text += "[" + at.JSONPointer.LastToken() + "]"
		}
		wrong.own = own.text
		wrong.text += ": " + own.text
	case isWant && t == reflect.TypeFor[[]string](): // of an element
		wrong.text += " must be " + (&wantError{wanted(t), want.got}).Error()
	case isWant && t != reflect.TypeFor[map[string]string](): // whose values may be secrets
		wrong.text += " must be " + want.Error()
	default:
		wrong.text += " must be " + (&wantError{wanted(t), raw}).Error()
	}
	d.wrong = append(d.wrong, wrong)
}

// refuse notes that a member has a value that its type allows and its meaning
// does not.
func (d *decoding) refuse(name, want string) {
	text := fmt.Sprintf("%s %q must be %s, got %s", d.label, name, want, describe(d.sent[name]))
	d.wrong = append(d.wrong, wrongMember{name: name, text: text})
}

// take returns a wrong member and no longer counts it as one.
func (d *decoding) take(name string) (wrong wrongMember, ok bool) {
	i := slices.IndexFunc(d.wrong, func(w wrongMember) bool { return w.name == name })
	if i < 0 {
		return wrongMember{}, false
	}
	wrong = d.wrong[i]
	d.wrong = slices.Delete(d.wrong, i, i+1)
	return wrong, true
}

// check returns what is wrong with the object: a missing member, an unknown one,
// or the first whose value was not understood.
func (d *decoding) check() error {
	for _, name := range d.shape.required {
		if _, ok := d.sent[name]; !ok {
			return d.shape.missing(d.label, name)
		}
	}
	if unknown := d.unknown(); len(unknown) > 0 {
		return fmt.Errorf("%s %s is unknown; allowed are %s", d.label, Excerpt(slices.Min(unknown)), d.shape.allowed())
	}
	if len(d.wrong) > 0 {
		return errors.New(d.wrong[0].text)
	}
	return nil
}

func (d *decoding) unknown() (names []string) {
	if d.shape.open {
		return nil
	}
	known := d.shape.names()
	for name := range d.sent {
		if !slices.Contains(known, name) {
			names = append(names, name)
		}
	}
	return names
}

// wantError is what a value must be, and what came. A value that may be a secret
// is left out.
type wantError struct {
	want string
	got  jsontext.Value
}

func (e *wantError) Error() string {
	if e.got == nil {
		return e.want
	}
	return e.want + ", got " + describe(e.got)
}

// ownError is what is wrong with a value in the words of its own type.
type ownError struct{ text string }

func (e *ownError) Error() string { return e.text }

// wanted says what a value of a type is on the wire.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "an integer"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string in base64"
		}
		return "a list of " + strings.TrimPrefix(strings.TrimPrefix(wanted(t.Elem()), "a "), "an ") + "s"
	case reflect.Map:
		if t.Elem().Kind() == reflect.String {
			return "an object of strings"
		}
	default:
	}
	return "an object"
}
