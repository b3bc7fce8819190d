//go:build peers

package differential

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// describe prints a request or an answer on one line: what is not zero.
func describe(m any) string {
	if m == nil {
		return "nothing"
	}
	v := reflect.ValueOf(m).Elem()
	name := strings.TrimPrefix(v.Type().String(), "kmsg.")
	return fmt.Sprintf("%s v%d %s", name, m.(interface{ GetVersion() int16 }).GetVersion(), show(v))
}

func show(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Invalid:
		return "nil"
	case reflect.Pointer:
		if v.IsNil() {
			return "nil"
		}
		return show(v.Elem())
	case reflect.String:
		return fmt.Sprintf("%q", v.String())
	case reflect.Array:
		return fmt.Sprintf("%x", v.Interface())
	case reflect.Slice:
		return showSlice(v)
	case reflect.Struct:
		var parts []string
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Name == "Version" || f.Name == "UnknownTags" || v.Field(i).IsZero() {
				continue
			}
			if strings.HasSuffix(f.Name, "ErrorCode") {
				parts = append(parts, code(v.Field(i).Int()))
				continue
			}
			parts = append(parts, f.Name+"="+show(v.Field(i)))
		}
		return "{" + strings.Join(parts, " ") + "}"
	}
	return fmt.Sprint(v.Interface())
}

func showSlice(v reflect.Value) string {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		b := v.Bytes()
		if batches, err := readBatches(b); len(batches) > 0 && err == nil {
			return fmt.Sprint(batches)
		}
		if len(b) > 40 {
			return fmt.Sprintf("%x… (%d bytes)", b[:40], len(b))
		}
		return fmt.Sprintf("%x", b)
	}
	var parts []string
	for i := range v.Len() {
		parts = append(parts, show(v.Index(i)))
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// keyOf names a request without its fields.
func keyOf(req kmsg.Request) string { return kmsg.NameForKey(req.Key()) }
