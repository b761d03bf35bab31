import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;

/** Prints for each pattern "refused", or a digit for each subject: 1 if the pattern matches it as a whole. */
public class Re2Patterns {
    public static void main(String[] arguments) throws IOException {
        List<String> subjects = lines(Path.of(arguments[0], "subjects"));
        for (String pattern : lines(Path.of(arguments[0], "patterns"))) {
            System.out.println(results(pattern, subjects));
        }
    }

    private static String results(String pattern, List<String> subjects) {
        try {
            Pattern compiled = Pattern.compile(pattern);
            StringBuilder found = new StringBuilder();
            for (String subject : subjects) {
                found.append(compiled.matcher(subject).matches() ? '1' : '0');
            }
            return found.toString();
        } catch (PatternSyntaxException refusal) {
            return "refused";
        }
    }

    private static List<String> lines(Path path) throws IOException {
        List<String> found = new ArrayList<>();
        for (String line : Files.readAllLines(path)) {
            found.add(new String(HexFormat.of().parseHex(line), StandardCharsets.UTF_8));
        }
        return found;
    }
}
