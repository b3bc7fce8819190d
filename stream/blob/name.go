package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// ownerFile is the name, under a sink's stream, of the blob that says whose prefix it is. Readers of folders take names
// with a leading underscore for no data.
const ownerFile = "_strandline-owner.json"

// maxSuffix bounds the search for a name without foreign blocks.
const maxSuffix = 100

// blobName is the name of the blob whose first row has this event time and number: a function of the data, so that a
// replay gives the same names. Times outside the years 1 to 9999 count as the nearest of them.
func blobName(streamPath string, partition int, firstMs, number int64) string {
	low := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	high := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	t := time.UnixMilli(min(max(firstMs, low.UnixMilli()), high.UnixMilli())).UTC()
	return fmt.Sprintf("%s/%d/%s-%d.avro", streamPath, partition, t.Format("2006/01/02/15/04-05"), number)
}

// suffixed is the name to use instead of one that is full of foreign uncommitted blocks; 0 is the name itself.
func suffixed(name string, n int) string {
	if n == 0 {
		return name
	}
	return name[:len(name)-len(".avro")] + "-r" + strconv.Itoa(n) + ".avro"
}

// identity is who prepares a token: it goes into the token and into every blob's commit id.
type identity struct {
	job, run, sink, task string
}

// commitID tells our blob from another's: it names the writer, and its hash covers the sink, the blob's name and the
// block list, hence the content, since no two blocks share an id.
func (w identity) commitID(b *Blob) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00", w.sink, b.Name)
	for _, id := range b.BlockIDs() {
		h.Write(id[:])
	}
	return w.commitPrefix() + hex.EncodeToString(h.Sum(nil)[:16])
}

func (w identity) commitPrefix() string {
	return "1/" + url.PathEscape(w.job) + "/" + url.PathEscape(w.run) + "/" + url.PathEscape(w.task) + "/"
}

// check refuses an identity whose commit ids would be too long, which must be known before anything is written.
func (w identity) check() error {
	if n := len(w.commitPrefix()) + 32; n > MaxCommitIDBytes {
		return &SizeError{What: fmt.Sprintf("the commit id of job %q, run %q, task %q", w.job, w.run, w.task), Size: n,
			Limit: MaxCommitIDBytes, Fix: "use shorter names, of plain letters and digits"}
	}
	for _, s := range []string{w.job, w.run, w.sink, w.task} {
		if len(s) > maxTokenString {
			return &SizeError{What: fmt.Sprintf("the name %q…", s[:32]), Size: len(s), Limit: maxTokenString, Fix: "use a shorter one"}
		}
	}
	return nil
}

// metadata is what a published blob carries: the commit id, and what loaders such as Azure Data Explorer read.
func (w identity) metadata(b *Blob, streamPath string) map[string]string {
	return map[string]string{
		commitKey:     w.commitID(b),
		schemaHashKey: b.Schema.String(),
		streamKey:     streamPath,
		rowsKey:       strconv.FormatInt(b.Rows, 10),
		rawBytesKey:   strconv.FormatInt(b.RawBytes, 10),
	}
}
