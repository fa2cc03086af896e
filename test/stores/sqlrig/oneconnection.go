package sqlrig

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/dlock-go/dlock"
)

// OneConnection uses everything at once over a single connection.
func (d *Database) OneConnection(t *testing.T, raw string) {
	t.Helper()
	client := d.Client(t, With(raw, "max_open=1"))
	ctx := Within(t)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for turn := range 4 {
				var opts []dlock.Option
				if turn%2 == 0 {
					opts = append(opts, dlock.WithFair())
				}
				name := fmt.Sprint("name/", i%2, turn%2)
				err := client.Do(ctx, name, func(ctx context.Context) error {
					for info, err := range client.Locks(ctx, "name/") {
						if err != nil {
							return err
						}
						if _, _, err := client.Find(ctx, info.Name); err != nil { // while listing
							return err
						}
					}
					return nil
				}, opts...)
				if err != nil {
					t.Errorf("Do(%q): %v", name, err)
				}
			}
		})
	}
	group.Wait()
	if _, err := client.Diagnose(ctx); err != nil {
		t.Errorf("diagnose: %v", err)
	}
}
