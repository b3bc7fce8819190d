import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs programs one after the other in this process, since starting one takes longer than most of them run. Each line of
 * standard input names a class and its arguments, separated by the unit separator; the answer is a line
 * "exit code, bytes of standard output, bytes of standard error", and those bytes.
 */
public final class Runner {
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1L;

        Exited() {
            super("", null, false, false);
        }

        @Override
        public String toString() {
            return ""; // tools print what they catch
        }
    }

    private static Integer exitCode;

    private static void exit(int code) {
        if (exitCode == null) { // what catches our Exited may call exit once more
            exitCode = code;
        }
        throw new Exited();
    }

    public static void main(String[] lines) throws Exception {
        PrintStream answers = System.out;
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        // Set once, before anything remembers the real ones.
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setHaltProcedure((code, message) -> exit(code));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\u001f", -1);
            out.reset();
            err.reset();
            int code = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            answers.print("exit " + code + " " + out.size() + " " + err.size() + "\n");
            out.writeTo(answers);
            err.writeTo(answers);
            answers.flush();
        }
        Runtime.getRuntime().halt(0); // clients that a tool has left open are not waited for
    }

    private static int run(String name, String[] args) {
        exitCode = null;
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof Exited)) {
                e.getCause().printStackTrace();
                return 1;
            }
        } catch (ReflectiveOperationException e) {
            e.printStackTrace();
            return 1;
        }
        return exitCode == null ? 0 : exitCode;
    }
}
