package sqllock

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// listPage is how many locks are read at once. Between pages nothing is open,
// so that the caller may use the store, even over a single connection.
const listPage = 256

// afterName, appended to a name, makes the first text after it: no legal name has control
// characters.
const afterName = "\x01"

// List implements driver.Lister. The locks come in the order of their names.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		first := strings.ToValidUTF8(prefix, "\xff")
		first, _, _ = strings.Cut(first, "\xff") // databases do not compare parts of characters
		for {
			page, err := s.listPage(ctx, first)
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			for _, info := range page {
				if info.Name < prefix {
					continue
				}
				if !strings.HasPrefix(info.Name, prefix) || !yield(info, nil) {
					return
				}
			}
			if len(page) < listPage {
				return
			}
			first = page[len(page)-1].Name + afterName
		}
	}
}

func (s *Store) listPage(ctx context.Context, first string) (page []driver.Info, err error) {
	err = s.read(ctx, "list", func() error {
		page = page[:0]
		return s.run().Each(ctx, statement.List, []any{first, listPage}, func(scan func(...any) error) error {
			var info driver.Info
			var holder string
			var since, left int64
			if err := scan(&info.Name, &info.Token, &holder, &since, &left, &info.Waiters); err != nil {
				return err
			}
			info.Holder = driver.DecodeHolder(holder)
			info.Since, info.Remaining = time.UnixMilli(since), remaining(left)
			page = append(page, info)
			return nil
		})
	})
	return page, err
}
