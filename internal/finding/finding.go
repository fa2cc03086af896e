// Package finding makes the findings of a diagnosis.
package finding

import (
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// OK returns a finding that nothing is wrong.
func OK(check, format string, args ...any) driver.Finding {
	return driver.Finding{Check: check, Level: driver.LevelOK, Message: fmt.Sprintf(format, args...)}
}

// Warning returns a finding of that level.
func Warning(check, format string, args ...any) driver.Finding {
	return driver.Finding{Check: check, Level: driver.LevelWarning, Message: fmt.Sprintf(format, args...)}
}

// Problem returns a finding of that level.
func Problem(check, format string, args ...any) driver.Finding {
	return driver.Finding{Check: check, Level: driver.LevelProblem, Message: fmt.Sprintf(format, args...)}
}

// Breaking returns a finding about a promise that the store does not keep.
func Breaking(promise driver.Promise, f driver.Finding) driver.Finding {
	f.Breaks = promise
	return f
}
