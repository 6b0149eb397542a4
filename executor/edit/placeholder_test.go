package edit_test

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

// A draft with a placeholder in any words is refused where it loses lines, and taken where it loses none.
func TestMergeOfUnknownPlaceholders(t *testing.T) {
	t.Parallel()
	const file = "import os\n\n\ndef alpha(x):\n    y = x + 1\n    return y\n\n\ndef beta(x):\n    z = x * 2\n    return z\n\n\nclass C:\n    def run(self):\n        return 1\n"
	for _, line := range []string{
		"# this code remains unchanged", "# Other methods remain the same", "# code omitted for brevity", "# <these functions>", "# original code",
		"# ... (otras funciones permanecen igual)", "{/* other elements unchanged */}", "// ... more code ...", "...", "…", "[...]", "# [snip]",
		"// das Übrige bleibt", "-- その他は変更なし", "/* weiter wie bisher */", "<!-- as above -->", "; as above", "% wie oben", "REM as above", "rem as above",
		`"""the other functions"""`, "'''as above'''", "(* as above *)", "{- as above -}", "! as above", ":: as above", "' as above", "{{!-- as above --}}", "<%-- as above --%>",
		"@* as above *@", "dnl as above", "* as above", "#as above", "//as above", "... as above", "as above ...", "(... as above)", "⋮", "# etc.", "# --- 8< ---", "# ~~~", "#> as above", "/// as above",
	} {
		for _, draft := range []string{
			line + "\n\n\ndef beta(x):\n    z = x * 3\n    return z\n\n\n" + line + "\n",
			"import os\n\n" + line + "\n\ndef beta(x):\n    z = x * 3\n    return z\n\n\nclass C:\n    def run(self):\n        return 1\n",
			"import os\n\n\ndef alpha(x):\n    y = x + 1\n    return y\n\n\ndef beta(x):\n    " + line + "\n",
		} {
			b := newBench(t)
			path := b.write("f", file, 0o640)
			_, err := b.Merge(edit.Draft{Path: path, Content: draft, Start: 1, End: -1})
			if err == nil || b.content("f") != file || !strings.Contains(err.Error(), line) {
				t.Errorf("%q: got %v and %q", line, err, b.content("f"))
			}
		}
		b := newBench(t)
		b.write("f", file, 0o640)
		draft := strings.Replace(file, "    z = x * 2", "    "+line+"\n    z = x * 2", 1)
		if _, err := b.Merge(edit.Draft{Path: b.path("f"), Content: draft, Start: 1, End: -1}); err != nil || b.content("f") != draft {
			t.Errorf("%q between neighbours: got %v and %q", line, err, b.content("f"))
		}
	}
}

func TestPlaceholders(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"# ... existing code ...", "    // ... existing code ...", "# unchanged", "-- no changes", "; rest of the file", "% Rest of function",
		"/* ... rest of code ... */", "<!-- unchanged -->", "# … existing code …", "... existing code ...", "# (existing code unchanged)",
		"// No changes here", "# keep existing imports", "# ...", "# ..", "# [..]",
		"# rest of ...", "// Rest of", "# ... (rest unchanged) ...", "// the rest stays the same",
		"# [... existing code ...]", "# --- unchanged ---", "// === existing code ===", "--- unchanged ---", "/** unchanged **/",
		"{/* ... existing code ... */}", "{# unchanged #}", "# <existing code>", "[... existing code ...]", "REM ... existing code ...", "(* rest of the module *)", "⋮ unchanged ⋮",
	} {
		if !edit.IsPlaceholder(line) {
			t.Errorf("%q stands for nothing", line)
		}
	}
	for _, line := range []string{
		"...", "unchanged", "The rest of the text", "# the value is unchanged by this, see below", "# existing users keep what they have",
		"x = 1  # unchanged", `"""The rest of the text"""`, "...rest", "#define existing code", "# rest", "# - same", "# * other", "# ---", "{/* unchanged */} {x}", "#include <rest>", "", "# " + strings.Repeat("rest of the code ", 10),
	} {
		if edit.IsPlaceholder(line) {
			t.Errorf("%q is taken for a placeholder", line)
		}
	}
}
