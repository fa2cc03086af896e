package driver_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

func TestOwnersDiffer(t *testing.T) {
	const each, goroutines = 2000, 8
	var mu sync.Mutex
	seen := map[driver.Owner]bool{{}: true}
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				owner := driver.NewOwner()
				mu.Lock()
				if seen[owner] {
					t.Errorf("NewOwner returned %s twice", owner.Hex())
				}
				seen[owner] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != each*goroutines+1 {
		t.Errorf("%d different owners; want %d", len(seen)-1, each*goroutines)
	}
}

func TestOwnerPrintsHidden(t *testing.T) {
	owner := driver.NewOwner()
	grant := driver.Grant{Name: "x", Owner: owner}
	text, err := json.Marshal(grant)
	if err != nil {
		t.Fatal(err)
	}
	shown := string(text)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		shown += fmt.Sprintf(verb, owner) + fmt.Sprintf(verb, grant) + fmt.Sprintf(verb, &grant)
	}
	for _, secret := range []string{owner.Hex(), strings.ToUpper(owner.Hex()), strings.Trim(fmt.Sprint(owner[:]), "[]")} {
		if strings.Contains(shown, secret) {
			t.Errorf("the owner is shown in %s", shown)
		}
	}
	if len(owner.Hex()) != 32 {
		t.Errorf("Hex returns %d digits; want 32", len(owner.Hex()))
	}
}
