package tools

// ParseArguments reads the arguments of a call.
func ParseArguments(text string) (members map[string]any, repaired []string, err error) {
	return parseArguments(text)
}
