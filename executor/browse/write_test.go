package browse

import (
	"strconv"
	"strings"
)

// write writes a call as a program.
func write(c call) string {
	args := make([]string, 0, len(c.args))
	for _, a := range c.args {
		args = append(args, literal(a))
	}
	return c.name + "(" + strings.Join(args, ", ") + ")"
}

func literal(v any) string {
	switch v := v.(type) {
	case string:
		return repr(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []any:
		items := make([]string, 0, len(v))
		for _, item := range v {
			items = append(items, literal(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return "None"
}
