package sqllock

import (
	"strings"
	"testing"
)

func TestNewRefusesBoundSchemes(t *testing.T) {
	for _, scheme := range []Scheme{ForUpdate, Session} {
		_, err := New(t.Context(), nil, &Options{Dialect: Postgres, Scheme: scheme})
		if err == nil || !strings.Contains(err.Error(), "NewBound") {
			t.Errorf("New with %s says %v, want that it is for NewBound", scheme, err)
		}
	}
}
