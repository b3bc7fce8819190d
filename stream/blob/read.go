package blob

import (
	"context"
	"fmt"
	"io"

	"github.com/twmb/avro/ocf"
)

// ReadRows calls row for every row of a blob that a Sink has written, in order, until it returns an error, which ReadRows
// then returns. T is the type that the sink was made for, or map[string]any. It reads a block at a time.
func ReadRows[T any](ctx context.Context, store Store, name string, row func(T) error) error {
	data, err := store.Read(ctx, name)
	if err != nil {
		return err
	}
	defer data.Close()
	r, err := ocf.NewReader(data)
	if err != nil {
		return fmt.Errorf("blob %s in %s is no Avro file: %w", name, store, err)
	}
	defer r.Close()
	for n := 1; ; n++ {
		var v T
		if err := r.Decode(&v); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("blob %s in %s, row %d: %w", name, store, n, err)
		}
		if err := row(v); err != nil {
			return err
		}
	}
}
