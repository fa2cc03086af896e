package sqllock

import (
	"context"
	"iter"
	"strings"
	"time"
	"unicode"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/row"
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
		if strings.ContainsFunc(prefix, unicode.IsControl) {
			return // no name has a control character, and PostgreSQL has no text with \x00
		}
		first := strings.ToValidUTF8(prefix, "\xff")
		first, _, _ = strings.Cut(first, "\xff") // databases do not compare parts of characters
		for {
			page, rows, last, err := s.listPage(ctx, first)
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
			if rows < listPage {
				return
			}
			first = last + afterName
		}
	}
}

// listPage returns the holders of the locks from first on, how many locks that are, and the last.
func (s *Store) listPage(ctx context.Context, first string) (page []driver.Info, rows int, last string, err error) {
	err = s.read(ctx, "list", func() error {
		page, rows = page[:0], 0
		return s.run().Each(ctx, statement.List, []any{first, listPage}, func(scan func(...any) error) error {
			var waiters int
			lock, err := row.Read(scan, []any{&last}, &waiters)
			if err != nil {
				return err
			}
			rows++
			for i := range lock.Shares {
				h := &lock.Shares[i]
				page = append(page, driver.Info{Name: last, Mode: lock.Mode, Token: firstToken(h.Token), Holder: h.Holder,
					Since: time.UnixMilli(h.Since), Remaining: remaining(lock.Remaining(h)), Waiters: waiters})
			}
			return nil
		})
	})
	return page, rows, last, err
}
