package proc_test

import (
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

func TestMain(m *testing.M) { testhelp.OpenMain(m) }
